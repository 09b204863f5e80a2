"use strict";
/* Charts of many rows: the overview, curves over lambda and shots, base against new classes. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#999999"];
const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "star", "x", "pentagon"];
const ABOVE = { orientation: "h", y: 1.02, yanchor: "bottom" };
const BELOW = { orientation: "h", y: -0.2, yanchor: "top" };
const csvOf = new Map();
const drawn = new Map();
const methods = [...new Set(page.rows.map((row) => row.method))];
const kinds = [...new Set(page.rows.map((row) => `${row.term} ${row.calibrator}`))].sort();

const colour = (row) => COLOURS[methods.indexOf(row.method) % COLOURS.length];
const symbol = (row) => SYMBOLS[kinds.indexOf(`${row.term} ${row.calibrator}`) % SYMBOLS.length];
const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function themed(layout) {
  const axis = { gridcolor: cssColour("--line"), linecolor: cssColour("--soft"), zerolinecolor: cssColour("--line"), automargin: true };
  const axes = Object.fromEntries(Object.entries(layout).filter(([key]) => /^[xy]axis\d?$/.test(key)).map(([key, value]) => [key, { ...axis, ...value }]));
  return { margin: { t: 10, r: 10, b: 45, l: 60 }, paper_bgcolor: cssColour("--back"), plot_bgcolor: cssColour("--back"), font: { color: cssColour("--text"), family: "system-ui, sans-serif" }, hoverlabel: { align: "left" }, legend: { font: { size: 11 } }, ...layout, ...axes };
}

/* Draw a chart, and keep what it takes to draw it again and to save its data; without traces say why. */
function draw(id, traces, layout, csv, words) {
  drawn.set(id, [traces, layout]);
  csvOf.set(id, () => csv);
  byId(`${id}-words`).textContent = traces.length ? words : "";
  const place = byId(id);
  place.classList.toggle("empty", !traces.length);
  if (!traces.length) {
    Plotly.purge(place);
    place.textContent = words;
    return;
  }
  if (!place.classList.contains("js-plotly-plot")) place.textContent = "";
  Plotly.react(place, traces, themed(layout), { displayModeBar: false, responsive: true });
}

function redraw() {
  for (const [id, [traces, layout]] of drawn) if (traces.length) Plotly.react(byId(id), traces, themed(layout));
}

/* Error bars from low and high ends; none where there is no interval. */
function bars(values, metric) {
  const length = (from, to) => (from === null || to === null ? 0 : scale(metric) * (to - from));
  return { type: "data", symmetric: false, array: values.map(([mean, , high]) => length(mean, high)), arrayminus: values.map(([mean, low]) => length(low, mean)), thickness: 1.2, width: 3 };
}

function valueText(row, metric) {
  const [mean, low, high] = row.values[metric];
  const interval = low === null ? "" : ` (${shown(metric, low)} to ${shown(metric, high)})`;
  return `${page.metrics[metric]} ${shown(metric, mean)}${interval}`;
}

function drawOverview(indices) {
  const groups = grouped(indices, (index) => page.rows[index].title);
  const traces = [...groups].map(([title, members]) => {
    const rows = members.map((index) => page.rows[index]);
    const values = (metric) => rows.map((row) => scale(metric) * row.values[metric][0]);
    return {
      type: "scatter", mode: "markers", name: plain(title), customdata: members,
      x: values("accuracy"), y: values("ece"),
      error_x: bars(rows.map((row) => row.values.accuracy), "accuracy"), error_y: bars(rows.map((row) => row.values.ece), "ece"),
      text: rows.map((row) => [row.title, setting(row), valueText(row, "accuracy"), valueText(row, "ece")].map(plain).join("<br>")),
      hoverinfo: "text", marker: { size: 10, color: colour(rows[0]), symbol: symbol(rows[0]), opacity: 0.9 },
    };
  });
  const csv = [["method", "setting", "accuracy", "accuracy low", "accuracy high", "ece", "ece low", "ece high"], ...indices.map((i) => [page.rows[i].title, setting(page.rows[i]), ...page.rows[i].values.accuracy.slice(0, 3), ...page.rows[i].values.ece.slice(0, 3)])];
  const words = indices.length ? bestWords(indices) : "No row passes the filters.";
  draw("overview", traces, { xaxis: { title: { text: "accuracy (%)" } }, yaxis: { title: { text: "ECE (%)" }, rangemode: "tozero" }, showlegend: true }, csv, words);
  if (!traces.length) return;
  byId("overview").removeAllListeners("plotly_click");
  byId("overview").on("plotly_click", (event) => choose(event.points[0].customdata, true));
}

function grouped(items, key) {
  const groups = new Map();
  for (const item of items) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}

function bestWords(indices) {
  const best = (metric, sign) => indices.reduce((a, b) => (sign * page.rows[b].values[metric][0] > sign * page.rows[a].values[metric][0] ? b : a));
  const told = (index, metric) => `${page.rows[index].title} (${shown(metric, page.rows[index].values[metric][0])} %)`;
  return `${indices.length} points. Highest accuracy: ${told(best("accuracy", 1), "accuracy")}; lowest ECE: ${told(best("ece", -1), "ece")}.`;
}

const levels = (rows, key) => [...new Set(rows.map((row) => row[key]))].sort((a, b) => a - b);

/* Lines over a label, one per family of rows that differ in it alone, and dashed lines for those without it. */
function drawCurve(id, over, indices) {
  const metric = byId("curve-metric").value;
  const rows = indices.map((index) => page.rows[index]);
  const families = [...grouped(rows.filter((row) => row[over] !== null), (row) => row.families[over]).values()].filter((family) => levels(family, over).length > 1);
  const ticks = levels(families.flat(), over);
  const references = new Set(over === "lambda" ? families.flat().filter((row) => row.baseline !== null).map((row) => page.rows[row.baseline]) : rows.filter((row) => row.shots === null));
  const places = families.flat().map(setting);
  const several = new Set(places).size > new Set(families.flat().map((row) => row.shots)).size;
  const named = (row) => plain((over === "lambda" ? row.title.replace(/, λ = .*$/, "") : row.title) + (several || (over === "lambda" && telling.includes("shots")) ? `, ${over === "shots" ? row.dataset : setting(row)}` : ""));
  const line = (row, dash) => ({ color: colour(row), dash, width: 1.6 });
  const traces = families.map((family) => {
    const members = ticks.flatMap((level) => family.filter((row) => row[over] === level));
    return { type: "scatter", mode: "lines+markers", name: named(members[0]), x: members.map((row) => String(row[over])), y: members.map((row) => scale(metric) * row.values[metric][0]), error_y: bars(members.map((row) => row.values[metric]), metric), line: line(members[0], members[0].term ? "solid" : "dot"), marker: { symbol: symbol(members[0]), size: 7 }, hoverinfo: "text", text: members.map((row) => `${plain(row.title)}<br>${plain(setting(row))}<br>${valueText(row, metric)}, ${row.seeds.length} seeds`) };
  });
  for (const row of ticks.length ? references : []) traces.push({ type: "scatter", mode: "lines", name: named(row), x: ticks.map(String), y: ticks.map(() => scale(metric) * row.values[metric][0]), line: line(row, "dash"), hoverinfo: "name+y" });
  const csv = [["method", "setting", over, metric, "low", "high", "deviation", "seeds"], ...families.flat().map((row) => [row.title, setting(row), row[over], ...row.values[metric], row.seeds.length])];
  const words = traces.length ? `${families.length} curves over ${ticks.join(", ")}.` : `No rows here differ only in ${over === "lambda" ? "λ" : "their shots"}.`;
  draw(id, traces, { xaxis: { title: { text: over === "lambda" ? "λ" : "shots" }, type: "category", categoryorder: "array", categoryarray: ticks.map(String) }, yaxis: { title: { text: page.metrics[metric] + (metric === "nll" ? "" : " (%)") } }, showlegend: true, legend: BELOW }, csv, words);
}

/* Each method on the base and on the new classes, and the harmonic mean of its accuracies. */
function drawHalves(indices) {
  const metric = byId("curve-metric").value;
  const families = [...grouped(indices.map((index) => page.rows[index]), (row) => row.families.classes).values()];
  const pairs = families.map((family) => ["base", "new"].map((half) => family.find((row) => row.classes === half))).filter(([base, other]) => base && other);
  const several = new Set(pairs.map(([base]) => `${base.dataset} ${base.backbone} ${base.shots}`)).size > 1;
  const names = pairs.map(([base]) => plain(base.title + (several ? `, ${base.dataset}, ${base.backbone}, ${detail(base.shots)} shots` : "")));
  const half = (place, name, shade) => ({ type: "bar", name, x: names, y: pairs.map((pair) => scale(metric) * pair[place].values[metric][0]), error_y: bars(pairs.map((pair) => pair[place].values[metric]), metric), marker: { color: shade }, hoverinfo: "text", hovertext: pairs.map((pair) => `${plain(pair[place].title)}, ${name}<br>${valueText(pair[place], metric)}`) });
  const means = pairs.map((pair) => harmonic(...pair.map((row) => row.values.accuracy[0])));
  const traces = pairs.length ? [half(0, "base", COLOURS[0]), half(1, "new", COLOURS[4])] : [];
  if (pairs.length && metric === "accuracy") traces.push({ type: "bar", name: "harmonic mean", x: names, y: means.map((mean) => 100 * mean), marker: { color: COLOURS[7] } });
  const csv = [["method", "setting", `base ${metric}`, `new ${metric}`, "harmonic mean of accuracies"], ...pairs.map(([base, other], k) => [base.title, setting(base), base.values[metric][0], other.values[metric][0], means[k]])];
  draw("halves-chart", traces, { barmode: "group", xaxis: { type: "category" }, yaxis: { title: { text: page.metrics[metric] + (metric === "nll" ? "" : " (%)") } }, showlegend: true, legend: ABOVE }, csv, pairs.length ? `${pairs.length} methods on both halves of the classes.` : "No method here was tested on base and on new classes.");
}

const harmonic = (a, b) => (a + b > 0 ? (2 * a * b) / (a + b) : 0);
