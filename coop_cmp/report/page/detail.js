"use strict";
/* The chosen row: the temperature, its runs and settings. */
let current = null;

async function choose(index, scroll) {
  table.chosen = index;
  for (const line of byId("table").tBodies[0].rows) {
    const chosen = Number(line.dataset.row) === index;
    line.classList.toggle("chosen", chosen);
    line.querySelector("button").setAttribute("aria-pressed", String(chosen));
  }
  const row = page.rows[index];
  byId("detail-title").textContent = `Chosen row: ${row.title}`;
  const [unpacked, baseline] = await Promise.all([
    unpack(index),
    row.baseline === null ? null : unpack(row.baseline),
  ]);
  if (table.chosen !== index) return; // another was chosen meanwhile
  current = { row, ...unpacked, baseline };
  const problems = [current.problem, ...row.problems].filter(Boolean);
  byId("detail-fit").hidden = !row.fit.length;
  if (row.fit.length) {
    const [accuracy, wrong, gradient] = row.fit.map((share) => `${(100 * share).toFixed(2)} %`);
    byId("detail-fit").textContent =
      `In training: accuracy ${accuracy} in the last tenth of the epochs; ${wrong} of the samples were wrong, on which alone CMP acts; the gradient of the weighted term in the logits had ${gradient} of the size of the cross-entropy's.`;
  }
  byId("detail-problem").hidden = !problems.length;
  byId("detail-problem").textContent = problems.join("; ");
  byId("detail-words").textContent =
    `${setting(row)}; ${row.seeds.length ? `seeds ${row.seeds.join(", ")}` : "no seeds"}. ${METRICS.map((metric) => valueText(row, metric)).join(", ")}.`;
  drawRecords();
  drawTraining();
  drawMistakes();
  if (current.temperatures) drawPictures();
  else
    for (const id of ["reliability", "confidences", "risk", "class-gaps"])
      draw(id, [], {}, [], "There is no outcome of each image.");
  document.body.dataset.ready = index;
  if (scroll) byId("detail").focus();
}

function drawPictures() {
  const slider = byId("temperature"),
    count = current.temperatures.temperature.length;
  slider.max = count - 1;
  slider.value = current.temperatures.temperature.indexOf(1);
  slider.disabled = count === 1;
  byId("one").replaceChildren(element("option", { value: slider.value }));
  drawRisk();
  drawClasses();
  drawTemperature();
}

/* All that moves with the temperature. */
function drawTemperature() {
  const { temperature, count, correct, confidence, ece, nll } = current.temperatures;
  const k = Number(byId("temperature").value),
    value = temperature[k].toFixed(2);
  const words = `${value}: ECE ${shown("ece", ece[k])} %, NLL ${shown("nll", nll[k])}`;
  byId("cooled").textContent = words;
  byId("temperature").setAttribute("aria-valuetext", words);
  const filled = count[k].map((_, bin) => bin).filter((bin) => count[k][bin] > 0);
  const accuracy = filled.map((bin) => correct[k][bin] / count[k][bin]);
  const sure = filled.map((bin) => confidence[k][bin] / count[k][bin]);
  drawReliability(filled, accuracy, sure, count[k], value);
  drawConfidences(count[k], correct[k], value);
}

function drawRecords() {
  const heads = [...new Set(current.runs.flatMap((run) => Object.keys(run)))];
  const cell = (run, name) => {
    const value = run[name] ?? "";
    return METRICS.includes(name)
      ? shown(name, value)
      : typeof value === "number"
        ? String(Math.round(10 * value) / 10)
        : value;
  };
  byId("runs").replaceChildren(
    element(
      "thead",
      {},
      element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name))),
    ),
    element(
      "tbody",
      {},
      ...current.runs.map((run) =>
        element("tr", {}, ...heads.map((name) => element("td", {}, cell(run, name)))),
      ),
    ),
  );
  byId("settings").replaceChildren(
    element(
      "tbody",
      {},
      ...Object.entries(current.settings).map(([key, value]) =>
        element("tr", {}, element("th", { scope: "row" }, key), element("td", {}, value)),
      ),
    ),
  );
}
