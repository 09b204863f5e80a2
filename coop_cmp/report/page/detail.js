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
  const [accuracy, wrong, gradient] = row.fit.map((share) => percent(share, 2));
  tell(
    "detail-fit",
    accuracy &&
      `In training: accuracy ${accuracy} in the last tenth of the epochs; ${wrong} of the samples were wrong, on which alone CMP acts; the gradient of the weighted term in the logits had ${gradient} of the size of the cross-entropy's.`,
  );
  tell("detail-problem", [current.problem, ...row.problems].filter(Boolean).join("; "));
  const seeds = row.seeds.length ? `seeds ${row.seeds.join(", ")}` : "no seeds";
  const values = METRICS.map((metric) => valueText(row, metric)).join(", ");
  tell("detail-words", `${row.setting}; ${seeds}. ${values}.`);
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

/* A paragraph with a text, hidden without one. */
function tell(id, text) {
  byId(id).hidden = !text;
  byId(id).textContent = text ?? "";
}

function drawPictures() {
  const slider = byId("temperature"),
    levels = current.temperatures.temperature;
  slider.max = levels.length - 1;
  slider.value = levels.indexOf(1);
  slider.disabled = levels.length === 1;
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
  drawReliability(count[k], correct[k], confidence[k], value);
  drawConfidences(count[k], correct[k], value);
}

function drawRecords() {
  const names = [...new Set(current.runs.flatMap((run) => Object.keys(run)))];
  const text = (run, name) => {
    const value = run[name] ?? "";
    if (METRICS.includes(name)) return shown(name, run[name]);
    return typeof value === "number" ? String(Math.round(10 * value) / 10) : value;
  };
  const heads = names.map((name) => (METRICS.includes(name) ? titled(name) : name));
  const lines = current.runs.map((run) => cells("td", names.map((name) => text(run, name))));
  fill("runs", [cells("th", heads, { scope: "col" })], lines);
  const settings = Object.entries(current.settings).map(([key, value]) => [
    element("th", { scope: "row" }, key),
    element("td", {}, value),
  ]);
  fill("settings", [], settings);
}

function fill(id, heads, lines) {
  const part = (tag, rows) => element(tag, {}, ...rows.map((row) => element("tr", {}, row)));
  byId(id).replaceChildren(part("thead", heads), part("tbody", lines));
}
