"use strict";
/* The pictures of the chosen row. */
const OVER = "#d55e00",
  UNDER = "#56b4e9",
  RIGHT = "#0072b2",
  WRONG = "#e69f00";

/* The bins of confidence of a row: how wide, their centres, their ranges in words. */
function binsOf(count) {
  const edge = (k) => Number((k / count.length).toFixed(4));
  return {
    width: 1 / count.length,
    centres: count.map((_, k) => (k + 0.5) / count.length),
    ranges: count.map((_, k) => `${edge(k)} to ${edge(k + 1)}`),
  };
}

const cut = (name) => ([...name].length > 24 ? `${[...name].slice(0, 23).join("")}…` : name);

function drawReliability(filled, accuracy, sure, count, value) {
  const { width, centres, ranges } = binsOf(count);
  const x = filled.map((bin) => centres[bin]),
    gap = sure.map((s, i) => s - accuracy[i]);
  const text = filled.map(
    (bin, i) =>
      `confidence ${ranges[bin]}<br>accuracy ${(100 * accuracy[i]).toFixed(1)} %<br>mean confidence ${(100 * sure[i]).toFixed(1)} %<br>${count[bin]} predictions`,
  );
  const bar = {
    type: "bar",
    x,
    width,
    hoverinfo: "text",
    hovertext: text,
    marker: { line: { width: 1, color: cssColour("--back") } },
  };
  const gaps = (name, sign, fill, shape) => ({
    ...bar,
    name,
    y: gap.map((g) => (sign * g > 0 ? Math.abs(g) : null)),
    base: accuracy.map((a, i) => Math.min(a, sure[i])),
    marker: { ...bar.marker, color: fill, pattern: { shape, size: 6, solidity: 0.25 } },
  });
  const traces = [
    { ...bar, name: "accuracy", y: accuracy, marker: { ...bar.marker, color: "#9ecae1" } },
    gaps("over-confident by", 1, OVER, "/"),
    gaps("under-confident by", -1, UNDER, "."),
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
      type: "bar",
      name: "predictions",
      x: centres,
      y: count,
      width,
      yaxis: "y2",
      hoverinfo: "y",
      marker: { color: "#8c8c8c" },
      showlegend: false,
    },
  ];
  const layout = {
    barmode: "overlay",
    xaxis: { title: { text: "confidence" }, range: [0, 1], anchor: "y2" },
    yaxis: { title: { text: "accuracy" }, range: [0, 1], domain: [0.3, 1] },
    yaxis2: { title: { text: "predictions" }, domain: [0, 0.22], nticks: 4 },
    legend: ABOVE,
    showlegend: true,
  };
  const csv = [
    ["temperature", "confidence", "accuracy", "mean confidence", "predictions"],
    ...filled.map((bin, i) => [Number(value), ranges[bin], accuracy[i], sure[i], count[bin]]),
  ];
  const worst = gap.reduce(
    (a, g, i) => (Math.abs(g) * count[filled[i]] > Math.abs(gap[a]) * count[filled[a]] ? i : a),
    0,
  );
  draw(
    "reliability",
    traces,
    layout,
    csv,
    `${current.images} predictions at temperature ${value}. The gap that costs most: confidence ${ranges[filled[worst]]}, mean ${(100 * sure[worst]).toFixed(1)} % sure, ${(100 * accuracy[worst]).toFixed(1)} % right.`,
  );
}

function drawConfidences(count, correct, value) {
  const { centres, ranges } = binsOf(count);
  const wrong = count.map((number, bin) => number - correct[bin]);
  const bar = (name, y, color, shape) => ({
    type: "bar",
    name,
    x: centres,
    y,
    marker: { color, pattern: { shape, size: 6, solidity: 0.25 } },
    hoverinfo: "y+name",
  });
  const csv = [
    ["temperature", "confidence", "right", "wrong"],
    ...ranges.map((range, bin) => [Number(value), range, correct[bin], wrong[bin]]),
  ];
  const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
  draw(
    "confidences",
    [bar("right", correct, RIGHT, ""), bar("wrong", wrong, WRONG, "/")],
    {
      barmode: "group",
      xaxis: { title: { text: "confidence" }, range: [0, 1] },
      yaxis: { title: { text: "predictions" } },
      legend: ABOVE,
    },
    csv,
    `${total(correct)} right and ${total(wrong)} wrong; of the wrong ones ${total(wrong.filter((_, bin) => bin / count.length >= 0.8))} are at least 80 % sure.`,
  );
}

function drawRisk() {
  const curve = (risk, name, dash) => ({
    type: "scatter",
    mode: "lines",
    name,
    x: risk.coverage.map((c) => 100 * c),
    y: risk.error.map((e) => 100 * e),
    line: { dash, color: dash === "solid" ? RIGHT : WRONG },
  });
  const traces = [curve(current.risk, plain(current.row.title), "solid")];
  if (current.baseline?.risk)
    traces.push(curve(current.baseline.risk, plain(page.rows[current.row.baseline].title), "dash"));
  const csv = [
    ["coverage", "error"],
    ...current.risk.coverage.map((c, k) => [c, current.risk.error[k]]),
  ];
  const half = current.risk.coverage.findIndex((c) => c >= 0.5);
  draw(
    "risk",
    traces,
    {
      xaxis: { title: { text: "coverage (%)" }, range: [0, 100] },
      yaxis: { title: { text: "error rate (%)" }, rangemode: "tozero" },
      legend: ABOVE,
      showlegend: true,
    },
    csv,
    `The more confident half is wrong in ${(100 * current.risk.error[half]).toFixed(1)} % of cases.`,
  );
}

/* What the trainings of the row recorded: losses on the left, shares on the right. */
function drawTraining() {
  const curves = Object.entries(current.training);
  const trace = (name, points, look) => ({
    type: "scatter",
    mode: "lines",
    name: plain(name),
    x: points.map(([epoch]) => epoch),
    y: points.map(([, value]) => value),
    hoverinfo: "name+x+y",
    ...look,
  });
  const losses = curves.filter(([name, points]) => name.startsWith("loss") && points.length);
  const accuracy = current.training.acc ?? [];
  const traces = losses.map(([name, points], k) =>
    trace(name.replace("loss_", "loss: "), points, { line: { color: COLOURS[k % 8], width: 1.5 } }),
  );
  const share = { yaxis: "y2", line: { color: COLOURS[7], dash: "dot", width: 1.5 } };
  if (accuracy.length) {
    traces.push(trace("accuracy (%)", accuracy, { ...share, line: { ...share.line, dash: "solid" } }));
    const wrong = accuracy.map(([epoch, value]) => [epoch, 100 - value]);
    traces.push(trace(current.row.term === "CMP" ? "penalised (%)" : "wrong (%)", wrong, share));
  }
  const positive = losses.every(([, points]) => points.every(([, value]) => value > 0));
  draw(
    "training",
    traces,
    {
      xaxis: { title: { text: "epoch" } },
      yaxis: {
        title: { text: "loss" },
        ...(positive ? { type: "log", dtick: 1, exponentformat: "power" } : {}),
      },
      yaxis2: {
        title: { text: "%" },
        overlaying: "y",
        side: "right",
        range: [0, 100],
        tickmode: "array",
        tickvals: [0, 25, 50, 75, 100],
        showgrid: false,
      },
      margin: { t: 10, r: 60, b: 55, l: 60 },
      legend: ABOVE,
      showlegend: true,
    },
    [
      ["curve", "epoch", "value"],
      ...curves.flatMap(([name, points]) => points.map((point) => [name, ...point])),
    ],
    traces.length
      ? `${losses[0]?.[1].at(-1)[0]} epochs.`
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
        `${one.predicted}, ${(100 * one.confidence).toFixed(1)} % sure; is ${one.label}`,
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
        `${plain(one.name)}<br>mean confidence ${(100 * one.confidence).toFixed(1)} %<br>accuracy ${(100 * one.accuracy).toFixed(1)} %<br>${one.predictions} predictions`,
    ),
    textposition: "none",
    marker: {
      color: gap.map((g) => (g > 0 ? OVER : UNDER)),
      pattern: { shape: gap.map((g) => (g > 0 ? "/" : ".")), size: 6, solidity: 0.25 },
    },
  };
  const csv = [
    ["class", "predictions", "mean confidence", "accuracy"],
    ...classes.map((one) => [one.name, one.predictions, one.confidence, one.accuracy]),
  ];
  draw(
    "class-gaps",
    [trace],
    {
      xaxis: { title: { text: "confidence − accuracy (points)" } },
      yaxis: {
        tickvals: classes.map((_, k) => k),
        ticktext: classes.map((one) => plain(cut(one.name))),
        autorange: "reversed",
      },
    },
    csv,
    `Right of 0 over-confident, left under-confident; the first is ${classes[0].name}.`,
  );
}
