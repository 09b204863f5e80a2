"use strict";
/* The table: what passes the filters, sorted, the first of it drawn. */
const LABELS = {
  dataset: "data set",
  trained_on: "trained on",
  backbone: "backbone",
  shots: "shots",
  classes: "classes",
  split: "split",
};
const AT_ONCE = 200;
const telling = Object.keys(LABELS).filter(
  (name) => new Set(page.rows.map((row) => detail(row[name]))).size > 1,
);
const table = { sort: null, downwards: false, all: false, chosen: null };

/* What a column sorts by: a label, a metric or its change. */
function sortKey(row, name) {
  const [metric, change] = name.split(" ");
  if (name === "method") return row.title;
  if (name === "seeds") return row.seeds.length;
  if (!METRICS.includes(metric)) return row[name];
  return (change ? row.changes[metric] : row.values[metric])?.[0] ?? null;
}

/* What has no value comes last, whichever way. */
function sorted(indices) {
  if (table.sort === null) return indices;
  const order = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), undefined, { numeric: true });
  return [...indices].sort((i, j) => {
    const [a, b] = [i, j].map((index) => sortKey(page.rows[index], table.sort));
    if (a === null || b === null) return (a === null) - (b === null);
    return table.downwards ? order(b, a) : order(a, b);
  });
}

function sortBy(name) {
  table.downwards = table.sort === name ? !table.downwards : false;
  table.sort = name;
  drawTable();
  byId("table").querySelector(`[data-sort="${name}"]`).focus();
}

function sortButton(name, text, label) {
  const mark = table.sort === name ? (table.downwards ? " ▾" : " ▴") : " ↕";
  return element(
    "button",
    {
      type: "button",
      "data-sort": name,
      "aria-label": `${text}: sort by ${label}`,
      onclick: () => sortBy(name),
    },
    text + mark,
  );
}

function headCell(name, text, change) {
  const sortedBy = table.sort === name || table.sort === change;
  const direction = !sortedBy ? "none" : table.downwards ? "descending" : "ascending";
  const second = change ? sortButton(change, "Δ", `the change of ${text}`) : null;
  const attributes = { scope: "col", "aria-sort": direction };
  return element("th", attributes, sortButton(name, text, text), second);
}

function head() {
  return element(
    "tr",
    {},
    headCell("method", "method"),
    telling.map((name) => headCell(name, LABELS[name])),
    headCell("seeds", "seeds"),
    METRICS.map((name) => headCell(name, titled(name), `${name} change`)),
  );
}

function changeText(metric, change) {
  const [estimate, low, high] = change;
  const interval =
    low === null ? "" : ` (${shown(metric, low, true)} to ${shown(metric, high, true)})`;
  return shown(metric, estimate, true) + interval;
}

function valueAndDeviation(row, metric) {
  const [mean, , , deviation] = row.values[metric];
  return shown(metric, mean) + (deviation === null ? "" : ` ± ${shown(metric, deviation)}`);
}

const VERDICTS = { 1: ["better", "▲ "], "-1": ["worse", "▼ "] };

function figureCell(row, metric) {
  const attributes = { class: "figure", "data-metric": metric };
  const cell = element("td", attributes, valueAndDeviation(row, metric));
  const change = row.changes[metric];
  if (!change) return cell;
  const [word, mark] = VERDICTS[verdict(metric, change, filters().together)] ?? [null, ""];
  const text = element("span", { class: word }, mark + changeText(metric, change));
  const unseen = word && element("span", { class: "unseen" }, ` ${word}`);
  cell.append(element("span", { class: "change" }, text, unseen));
  return cell;
}

function bodyRow(index) {
  const row = page.rows[index];
  const chosen = index === table.chosen;
  const mixed = row.mixed.length ? ` ⚠ mixed ${row.mixed.join(", ")}` : "";
  const button = {
    type: "button",
    "aria-pressed": String(chosen),
    onclick: () => choose(index, true),
  };
  return element(
    "tr",
    { "data-row": index, class: chosen ? "chosen" : null },
    element(
      "th",
      { scope: "row" },
      element("button", button, row.title),
      mixed ? element("span", { class: "change" }, mixed) : null,
    ),
    cells("td", [...telling.map((key) => detail(row[key])), row.seeds.join(", ") || "-"]),
    METRICS.map((metric) => figureCell(row, metric)),
  );
}

function drawTable() {
  const indices = sorted(passing());
  const drawn = table.all ? indices : indices.slice(0, AT_ONCE);
  byId("table").tHead.replaceChildren(head());
  byId("table").tBodies[0].replaceChildren(...drawn.map(bodyRow));
  byId("more").hidden = drawn.length === indices.length;
  byId("more").textContent = `Show all ${indices.length}`;
  csvOf.set("table", () => tableCsv(indices));
}

const LATEX = {
  "\\": "\\textbackslash{}",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
  λ: "$\\lambda$",
  "±": "$\\pm$",
  "−": "$-$",
};
const inLatex = (text) =>
  String(text)
    .replace(/[\\~^λ±−]|[&%$#_{}]/g, (sign) => LATEX[sign] ?? `\\${sign}`)
    .replace(/[\r\n]+/g, " ");

/* The table as shown, for booktabs; a significant change is bold. */
function tableLatex(indices) {
  const { together } = filters();
  const lines = indices.flatMap((index) => {
    const row = page.rows[index];
    const labels = [row.title, ...telling.map((name) => detail(row[name])), row.seeds.length];
    const values = METRICS.map((metric) => inLatex(valueAndDeviation(row, metric)));
    const changes = METRICS.map((metric) => {
      const change = row.changes[metric];
      if (!change) return "";
      const text = inLatex(changeText(metric, change));
      return verdict(metric, change, together) ? `\\textbf{${text}}` : text;
    });
    const first = [...labels.map(inLatex), ...values];
    const second = [...labels.map(() => ""), ...changes];
    return [first, ...(changes.some(Boolean) ? [second] : [])];
  });
  const heads = ["method", ...telling.map((name) => LABELS[name]), "seeds", ...METRICS.map(titled)];
  const line = (cells) => `${cells.join(" & ")} \\\\\n`;
  const columns = "l".repeat(heads.length - METRICS.length) + "r".repeat(METRICS.length);
  return `\\begin{tabular}{${columns}}\n\\toprule\n${line(heads.map(inLatex))}\\midrule\n${lines.map(line).join("")}\\bottomrule\n\\end{tabular}\n`;
}

function tableCsv(indices) {
  const ends = ["", " low", " high"];
  const parts = [...ends, " deviation", ...ends.map((end) => ` change${end}`), " p", " p together"];
  const none = Array(5).fill(null);
  const rows = indices.map((index) => {
    const row = page.rows[index];
    const labels = [row.title, ...Object.keys(LABELS).map((key) => row[key]), row.seeds.join(" ")];
    const numbers = (name) => [...row.values[name], ...(row.changes[name] ?? none)];
    return [...labels, ...METRICS.flatMap(numbers)];
  });
  const heads = METRICS.flatMap((name) => parts.map((part) => name + part));
  return [["method", ...Object.values(LABELS), "seeds", ...heads], ...rows];
}
