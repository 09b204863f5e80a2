"use strict";
/* Charts: drawn, drawn again in another theme, saved; and the overview of all rows. */
const COLOURS = page.colours;
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "star", "x", "pentagon"];
const LOOKS = ["", "-open", "-dot", "-open-dot"].flatMap((end) => SYMBOLS.map((s) => s + end));
const ABOVE = { orientation: "h", y: 1.02, yanchor: "bottom" };
const BELOW = { orientation: "h", y: -0.2, yanchor: "top", maxheight: 1000 };
const narrow = matchMedia("(max-width: 700px)");
const csvOf = new Map();
const drawn = new Map();

const colour = (row) => COLOURS[row.style[0] % COLOURS.length];
const symbol = (row) => LOOKS[row.style[1] % LOOKS.length];
const axis = (text, more) => ({ title: { text }, ...more });
const cssColour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themed(layout) {
  const [line, back] = [cssColour("--line"), cssColour("--back")];
  const axes = { gridcolor: line, zerolinecolor: line, linecolor: cssColour("--soft"), automargin: true };
  const look = {
    margin: { t: 10, r: 10, b: 55, l: 60 },
    showlegend: true,
    paper_bgcolor: back,
    plot_bgcolor: back,
    font: { color: cssColour("--text"), family: "system-ui, sans-serif" },
    hoverlabel: { align: "left" },
    xaxis: axes,
    yaxis: axes,
  };
  return { ...layout, template: { layout: look } };
}

/* Draw a chart, and keep what it takes to draw it again and to save its data; without traces say why. */
function draw(id, traces, layout, csv, words) {
  drawn.set(id, [traces, layout]);
  csvOf.set(id, () => csv);
  byId(`${id}-words`).textContent = traces.length ? words : "";
  const place = byId(id);
  const wasEmpty = place.classList.contains("empty");
  place.classList.toggle("empty", !traces.length);
  // A legend below takes a line per curve on a phone.
  const lines = narrow.matches && layout.legend === BELOW ? traces.length : 0;
  place.style.height = lines ? `${360 + 19 * lines}px` : "";
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

/* Error bars of rows from low and high ends; none where there is no interval. */
function bars(rows, metric) {
  const values = rows.map((row) => row.values[metric]);
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
    const means = (metric) => rows.map((row) => meanOf(row, metric));
    const text = (row) =>
      [row.title, row.setting, valueText(row, "accuracy"), valueText(row, "ece")].map(plain);
    return {
      type: "scatter",
      mode: "markers",
      name: plain(title),
      customdata: members,
      x: means("accuracy"),
      y: means("ece"),
      error_x: bars(rows, "accuracy"),
      error_y: bars(rows, "ece"),
      text: rows.map((row) => text(row).join("<br>")),
      hoverinfo: "text",
      marker: { size: 10, color: colour(rows[0]), symbol: symbol(rows[0]), opacity: 0.9 },
    };
  });
  const heads = ["accuracy", "ece"].flatMap((name) => [name, `${name} low`, `${name} high`]);
  const ends = ({ accuracy, ece }) => [...accuracy.slice(0, 3), ...ece.slice(0, 3)];
  draw(
    "overview",
    traces,
    {
      xaxis: axis("accuracy (%)", { range: around("accuracy", indices) }),
      yaxis: axis("ECE (%)", { range: [0, around("ece", indices)[1]] }),
      legend: narrow.matches ? BELOW : { font: { size: 11 } }, // else it would lie on the points
    },
    [
      ["method", "setting", ...heads],
      ...indices.map((i) => page.rows[i]).map((row) => [row.title, row.setting, ...ends(row.values)]),
    ],
    indices.length ? bestWords(indices) : "No row passes the filters.",
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
  const value = (index, metric) => page.rows[index].values[metric][0];
  const best = (metric, sign) => {
    const index = indices.reduce((a, b) =>
      sign * value(b, metric) > sign * value(a, metric) ? b : a,
    );
    return `${page.rows[index].title} (${shown(metric, value(index, metric))} %)`;
  };
  return `${indices.length} points. Highest accuracy: ${best("accuracy", 1)}; lowest ECE: ${best("ece", -1)}.`;
}
