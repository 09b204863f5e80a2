"use strict";
/* The pictures of the chosen row. */
const [RIGHT, OVER, , , WRONG, UNDER] = COLOURS;

/* The middles of the bins of confidence, and their ranges in words. */
function binsOf(count) {
  const edge = (k) => Number((k / count.length).toFixed(4));
  const middles = count.map((_, k) => (k + 0.5) / count.length);
  return { middles, ranges: count.map((_, k) => `${edge(k)} to ${edge(k + 1)}`) };
}

const cut = (name) => ([...name].length > 24 ? `${[...name].slice(0, 23).join("")}…` : name);
const hatched = (color, shape) => ({ color, pattern: { shape, size: 6, solidity: 0.25 } });
const share = (part, whole) => part.map((number, k) => number / whole[k]);
const total = (numbers) => numbers.reduce((a, b) => a + b, 0);

function drawReliability(counts, corrects, confidences, value) {
  const bins = counts.map((_, bin) => bin).filter((bin) => counts[bin] > 0);
  const filled = (numbers) => bins.map((bin) => numbers[bin]);
  const { middles, ranges } = binsOf(counts);
  const [count, range, x] = [counts, ranges, middles].map(filled);
  const accuracy = share(filled(corrects), count);
  const sure = share(filled(confidences), count);
  const gap = sure.map((s, i) => s - accuracy[i]);
  const bar = {
    type: "bar",
    x,
    width: 1 / counts.length,
    hoverinfo: "text",
    hovertext: range.map(
      (words, i) =>
        `confidence ${words}<br>accuracy ${percent(accuracy[i])}<br>mean confidence ${percent(sure[i])}<br>${count[i]} predictions`,
    ),
  };
  const line = { width: 1, color: cssColour("--back") };
  const gaps = (name, sign, marker) => ({
    ...bar,
    name,
    y: gap.map((g) => (sign * g > 0 ? Math.abs(g) : null)),
    base: accuracy.map((a, i) => Math.min(a, sure[i])),
    marker: { ...marker, line },
  });
  const traces = [
    { ...bar, name: "accuracy", y: accuracy, marker: { color: "#9ecae1", line } },
    gaps("over-confident by", 1, hatched(OVER, "/")),
    gaps("under-confident by", -1, hatched(UNDER, ".")),
    {
      type: "scatter",
      mode: "lines",
      name: "perfect",
      x: [0, 1],
      y: [0, 1],
      line: { dash: "dash", color: cssColour("--soft"), width: 1.2 },
      hoverinfo: "skip",
    },
    {
      ...bar,
      name: "predictions",
      x: middles,
      y: counts,
      yaxis: "y2",
      hoverinfo: "y",
      marker: { color: "#8c8c8c" },
      showlegend: false,
    },
  ];
  const layout = {
    barmode: "overlay",
    xaxis: axis("confidence", { range: [0, 1], anchor: "y2" }),
    yaxis: axis("accuracy", { range: [0, 1], domain: [0.3, 1] }),
    yaxis2: axis("predictions", { domain: [0, 0.22], nticks: 4 }),
    legend: ABOVE,
  };
  const cost = gap.map((g, i) => Math.abs(g) * count[i]);
  const worst = cost.indexOf(Math.max(...cost));
  draw(
    "reliability",
    traces,
    layout,
    [
      ["temperature", "confidence", "accuracy", "mean confidence", "predictions"],
      ...range.map((words, i) => [Number(value), words, accuracy[i], sure[i], count[i]]),
    ],
    `${current.images} predictions at temperature ${value}. The gap that costs most: confidence ${range[worst]}, mean ${percent(sure[worst])} sure, ${percent(accuracy[worst])} right.`,
  );
}

function drawConfidences(count, correct, value) {
  const { middles, ranges } = binsOf(count);
  const wrong = count.map((number, bin) => number - correct[bin]);
  const bar = (name, y, marker) => ({
    type: "bar",
    name,
    x: middles,
    y,
    marker,
    hoverinfo: "y+name",
  });
  const sure = total(wrong.filter((_, bin) => bin / count.length >= 0.8));
  draw(
    "confidences",
    [bar("right", correct, hatched(RIGHT, "")), bar("wrong", wrong, hatched(WRONG, "/"))],
    {
      barmode: "group",
      xaxis: axis("confidence", { range: [0, 1] }),
      yaxis: axis("predictions"),
      legend: ABOVE,
    },
    [
      ["temperature", "confidence", "right", "wrong"],
      ...ranges.map((range, bin) => [Number(value), range, correct[bin], wrong[bin]]),
    ],
    `${total(correct)} right and ${total(wrong)} wrong; of the wrong ones ${sure} are at least 80 % sure.`,
  );
}

function drawRisk() {
  const { coverage, error } = current.risk;
  const curve = (risk, row, color, dash) => ({
    type: "scatter",
    mode: "lines",
    name: plain(row.title),
    x: risk.coverage.map((c) => 100 * c),
    y: risk.error.map((e) => 100 * e),
    line: { dash, color },
  });
  const traces = [curve(current.risk, current.row, RIGHT, "solid")];
  if (current.baseline?.risk)
    traces.push(curve(current.baseline.risk, page.rows[current.row.baseline], WRONG, "dash"));
  draw(
    "risk",
    traces,
    {
      xaxis: axis("coverage (%)", { range: [0, 100] }),
      yaxis: axis("error rate (%)", { rangemode: "tozero" }),
      legend: ABOVE,
    },
    [["coverage", "error"], ...coverage.map((c, k) => [c, error[k]])],
    `The more confident half is wrong in ${percent(error[coverage.findIndex((c) => c >= 0.5)])} of cases.`,
  );
}

/* What the trainings of the row recorded: losses on the left, shares on the right. */
function drawTraining() {
  const curves = Object.entries(current.training).filter(([, points]) => points.length);
  const losses = curves.filter(([name]) => name.startsWith("loss"));
  const trace = (name, points, line, more) => ({
    type: "scatter",
    mode: "lines",
    name: plain(name),
    x: points.map(([epoch]) => epoch),
    y: points.map(([, value]) => value),
    line: { width: 1.5, ...line },
    hoverinfo: "name+x+y",
    ...more,
  });
  const traces = losses.map(([name, points], k) =>
    trace(name.replace("loss_", "loss: "), points, { color: COLOURS[k % COLOURS.length] }),
  );
  const accuracy = current.training.acc;
  if (accuracy?.length) {
    const wrong = accuracy.map(([epoch, value]) => [epoch, 100 - value]);
    const name = current.row.term === "CMP" ? "penalised (%)" : "wrong (%)";
    const right = { yaxis: "y2" };
    traces.push(trace("accuracy (%)", accuracy, { color: COLOURS[7] }, right));
    traces.push(trace(name, wrong, { color: COLOURS[7], dash: "dot" }, right));
  }
  const epochs = Math.max(...curves.flatMap(([, points]) => points.map(([epoch]) => epoch)));
  const positive = losses.every(([, points]) => points.every(([, value]) => value > 0));
  const log = positive ? { type: "log", dtick: 1, exponentformat: "power" } : {};
  draw(
    "training",
    traces,
    {
      xaxis: axis("epoch", epochs < 10 ? { dtick: 1 } : {}),
      yaxis: axis("loss", log),
      yaxis2: axis("%", {
        overlaying: "y",
        side: "right",
        range: [0, 100],
        dtick: 25,
        showgrid: false,
      }),
      margin: { t: 10, r: 60, b: 55, l: 60 },
      legend: ABOVE,
    },
    [
      ["curve", "epoch", "value"],
      ...curves.flatMap(([name, points]) => points.map((point) => [name, ...point])),
    ],
    traces.length
      ? `${epochs} epoch${epochs > 1 ? "s" : ""}.`
      : "These runs have recorded no training: they test a model of another run, or nothing is trained.",
  );
}

function drawMistakes() {
  const found = current.mistakes ?? [];
  byId("mistakes-words").textContent = found.length
    ? "The wrong predictions of any seed with the highest confidence, at temperature 1."
    : "No image of a mistake can be read here: there is none, or the data are not where the runs found them.";
  byId("mistakes").replaceChildren(
    ...found.map((one) =>
      element(
        "li",
        {},
        element("img", { src: one.picture, alt: one.file.split("/").slice(-2).join("/"), title: one.file }),
        `${one.predicted}, ${percent(one.confidence)} sure; is ${one.label}`,
      ),
    ),
  );
}

function drawClasses() {
  const classes = current.classes,
    gap = classes.map((one) => 100 * (one.confidence - one.accuracy));
  const trace = {
    type: "bar",
    orientation: "h",
    y: classes.map((_, k) => k),
    x: gap,
    hoverinfo: "text",
    hovertext: classes.map(
      (one) =>
        `${plain(one.name)}<br>mean confidence ${percent(one.confidence)}<br>accuracy ${percent(one.accuracy)}<br>${one.predictions} predictions`,
    ),
    textposition: "none",
    marker: hatched(
      gap.map((g) => (g > 0 ? OVER : UNDER)),
      gap.map((g) => (g > 0 ? "/" : ".")),
    ),
    showlegend: false,
  };
  const names = { tickvals: trace.y, ticktext: classes.map((one) => plain(cut(one.name))) };
  draw(
    "class-gaps",
    [trace],
    {
      xaxis: axis("confidence − accuracy (points)"),
      yaxis: { ...names, autorange: "reversed" },
    },
    [
      ["class", "predictions", "mean confidence", "accuracy"],
      ...classes.map((one) => [one.name, one.predictions, one.confidence, one.accuracy]),
    ],
    `Right of 0 over-confident, left under-confident; the first is ${classes[0].name}.`,
  );
}
