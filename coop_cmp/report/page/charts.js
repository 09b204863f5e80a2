"use strict";
/* Charts: drawn, drawn again in another theme, saved; and the overview of all rows. */
const COLOURS = [
  "#0072b2",
  "#d55e00",
  "#009e73",
  "#cc79a7",
  "#e69f00",
  "#56b4e9",
  "#8c6bb1",
  "#999999",
];
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "star", "x", "pentagon"];
const ABOVE = { orientation: "h", y: 1.02, yanchor: "bottom" };
const BELOW = { orientation: "h", y: -0.2, yanchor: "top" };
const csvOf = new Map();
const drawn = new Map();
const methods = [...new Set(page.rows.map((row) => row.method))].sort();
/* The titles of each method, with all weights: no two share a symbol. */
const variants = new Map(
  methods.map((method) => [
    method,
    [...new Set(page.rows.filter((row) => row.method === method).map((row) => row.title))].sort(),
  ]),
);
const LOOKS = ["", "-open", "-dot", "-open-dot"].flatMap((end) => SYMBOLS.map((s) => s + end));

const colour = (row) => COLOURS[methods.indexOf(row.method) % COLOURS.length];
const symbol = (row) => LOOKS[variants.get(row.method).indexOf(row.title) % LOOKS.length];
const cssColour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themed(layout) {
  const axis = {
    gridcolor: cssColour("--line"),
    linecolor: cssColour("--soft"),
    zerolinecolor: cssColour("--line"),
    automargin: true,
  };
  const axes = Object.fromEntries(
    Object.entries(layout)
      .filter(([key]) => /^[xy]axis\d?$/.test(key))
      .map(([key, value]) => [key, { ...axis, ...value }]),
  );
  return {
    margin: { t: 10, r: 10, b: 55, l: 60 },
    paper_bgcolor: cssColour("--back"),
    plot_bgcolor: cssColour("--back"),
    font: { color: cssColour("--text"), family: "system-ui, sans-serif" },
    hoverlabel: { align: "left" },
    legend: { font: { size: 11 } },
    ...layout,
    ...axes,
  };
}

/* Draw a chart, and keep what it takes to draw it again and to save its data; without traces say why. */
function draw(id, traces, layout, csv, words) {
  drawn.set(id, [traces, layout]);
  csvOf.set(id, () => csv);
  byId(`${id}-words`).textContent = traces.length ? words : "";
  const place = byId(id);
  const wasEmpty = place.classList.contains("empty");
  place.classList.toggle("empty", !traces.length);
  if (!traces.length) {
    Plotly.purge(place);
    place.textContent = words;
    return;
  }
  if (wasEmpty) place.textContent = "";
  Plotly.react(place, traces, themed(layout), { displayModeBar: false, responsive: true });
}

function redraw() {
  for (const [id, [traces, layout]] of drawn)
    if (traces.length) Plotly.react(byId(id), traces, themed(layout));
}

/* Error bars from low and high ends; none where there is no interval. */
function bars(values, metric) {
  const length = (from, to) => (from === null || to === null ? 0 : scale(metric) * (to - from));
  return {
    type: "data",
    symmetric: false,
    array: values.map(([mean, , high]) => length(mean, high)),
    arrayminus: values.map(([mean, low]) => length(low, mean)),
    thickness: 1.2,
    width: 3,
  };
}

function valueText(row, metric) {
  const [mean, low, high] = row.values[metric];
  const interval = low === null ? "" : ` (${shown(metric, low)} to ${shown(metric, high)})`;
  return `${titled(metric)} ${shown(metric, mean)}${interval}`;
}

function drawOverview(indices) {
  const groups = grouped(indices, (index) => page.rows[index].title);
  const traces = [...groups].map(([title, members]) => {
    const rows = members.map((index) => page.rows[index]);
    const values = (metric) => rows.map((row) => scale(metric) * row.values[metric][0]);
    return {
      type: "scatter",
      mode: "markers",
      name: plain(title),
      customdata: members,
      x: values("accuracy"),
      y: values("ece"),
      error_x: bars(
        rows.map((row) => row.values.accuracy),
        "accuracy",
      ),
      error_y: bars(
        rows.map((row) => row.values.ece),
        "ece",
      ),
      text: rows.map((row) =>
        [row.title, setting(row), valueText(row, "accuracy"), valueText(row, "ece")]
          .map(plain)
          .join("<br>"),
      ),
      hoverinfo: "text",
      marker: { size: 10, color: colour(rows[0]), symbol: symbol(rows[0]), opacity: 0.9 },
    };
  });
  const csv = [
    [
      "method",
      "setting",
      "accuracy",
      "accuracy low",
      "accuracy high",
      "ece",
      "ece low",
      "ece high",
    ],
    ...indices.map((i) => [
      page.rows[i].title,
      setting(page.rows[i]),
      ...page.rows[i].values.accuracy.slice(0, 3),
      ...page.rows[i].values.ece.slice(0, 3),
    ]),
  ];
  const words = indices.length ? bestWords(indices) : "No row passes the filters.";
  draw(
    "overview",
    traces,
    {
      xaxis: { title: { text: "accuracy (%)" }, range: around("accuracy", indices) },
      yaxis: { title: { text: "ECE (%)" }, range: [0, around("ece", indices)[1]] },
      showlegend: true,
      ...(innerWidth > 700 ? {} : { legend: BELOW }), // else it would lie on the points
    },
    csv,
    words,
  );
  if (!traces.length) return;
  byId("overview").removeAllListeners("plotly_click");
  byId("overview").on("plotly_click", (event) => choose(event.points[0].customdata, true));
}

/* A range for points with their intervals; a long one is cut, so that the points stay visible. */
function around(metric, indices) {
  if (!indices.length) return [0, 100];
  const known = indices.map((index) =>
    page.rows[index].values[metric]
      .slice(0, 3)
      .filter((value) => value !== null)
      .map((value) => scale(metric) * value),
  );
  const [points, ends] = [known.map(([mean]) => mean), known.flat()];
  const [low, high] = [Math.min(...points), Math.max(...points)];
  const [least, most] = [0.08 * (high - low) + 0.5, 0.5 * (high - low) + 2];
  return [
    Math.max(Math.min(...ends) - least, low - most),
    Math.min(Math.max(...ends) + least, high + most, 100 + least),
  ];
}

function grouped(items, key) {
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}

function bestWords(indices) {
  const best = (metric, sign) =>
    indices.reduce((a, b) =>
      sign * page.rows[b].values[metric][0] > sign * page.rows[a].values[metric][0] ? b : a,
    );
  const told = (index, metric) =>
    `${page.rows[index].title} (${shown(metric, page.rows[index].values[metric][0])} %)`;
  return `${indices.length} points. Highest accuracy: ${told(best("accuracy", 1), "accuracy")}; lowest ECE: ${told(best("ece", -1), "ece")}.`;
}
