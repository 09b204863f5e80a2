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

const sortKeys = {
  method: (row) => row.title,
  seeds: (row) => row.seeds.length,
  ...Object.fromEntries(telling.map((name) => [name, (row) => row[name]])),
  ...Object.fromEntries(METRICS.map((name) => [name, (row) => row.values[name][0]])),
  ...Object.fromEntries(
    METRICS.map((name) => [`${name} change`, (row) => row.changes[name]?.[0] ?? null]),
  ),
};

/* What has no value comes last, whichever way. */
function sorted(indices) {
  if (table.sort === null) return indices;
  const key = sortKeys[table.sort];
  const order = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), undefined, { numeric: true });
  return [...indices].sort((i, j) => {
    const [a, b] = [key(page.rows[i]), key(page.rows[j])];
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
  return element(
    "th",
    { scope: "col", "aria-sort": direction },
    sortButton(name, text, text),
    second,
  );
}

function head() {
  const cells = [
    headCell("method", "method"),
    ...telling.map((name) => headCell(name, LABELS[name])),
    headCell("seeds", "seeds"),
  ];
  return element(
    "tr",
    {},
    ...cells,
    ...METRICS.map((name) => headCell(name, titled(name), `${name} change`)),
  );
}

function changeText(metric, change) {
  const [estimate, low, high] = change;
  const interval =
    low === null ? "" : ` (${shown(metric, low, true)} to ${shown(metric, high, true)})`;
  return shown(metric, estimate, true) + interval;
}

function figureCell(row, metric) {
  const [mean, , , deviation] = row.values[metric];
  const cell = element(
    "td",
    { class: "figure", "data-metric": metric },
    shown(metric, mean) + (deviation === null ? "" : ` ± ${shown(metric, deviation)}`),
  );
  const change = row.changes[metric];
  if (change) {
    const sign = verdict(metric, change, filters().together);
    const mark = sign > 0 ? "▲ " : sign < 0 ? "▼ " : "";
    const words = sign
      ? element("span", { class: "unseen" }, sign > 0 ? " better" : " worse")
      : null;
    cell.append(
      element(
        "span",
        { class: "change" },
        element(
          "span",
          { class: sign > 0 ? "better" : sign < 0 ? "worse" : null },
          mark + changeText(metric, change),
        ),
        words,
      ),
    );
  }
  return cell;
}

function bodyRow(index) {
  const row = page.rows[index];
  const mixed = row.mixed.length ? ` ⚠ mixed ${row.mixed.join(", ")}` : "";
  const name = element(
    "th",
    { scope: "row" },
    element(
      "button",
      {
        type: "button",
        "aria-pressed": String(index === table.chosen),
        onclick: () => choose(index, true),
      },
      row.title,
    ),
    mixed ? element("span", { class: "change" }, mixed) : null,
  );
  const labels = telling.map((key) => element("td", {}, detail(row[key])));
  const seeds = element("td", {}, row.seeds.length ? row.seeds.join(", ") : "-");
  return element(
    "tr",
    { "data-row": index, class: index === table.chosen ? "chosen" : null },
    name,
    ...labels,
    seeds,
    ...METRICS.map((metric) => figureCell(row, metric)),
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
    const labels = [row.title, ...telling.map((name) => detail(row[name]))];
    const values = METRICS.map((metric) => {
      const [mean, , , deviation] = row.values[metric];
      return inLatex(
        shown(metric, mean) + (deviation === null ? "" : ` ± ${shown(metric, deviation)}`),
      );
    });
    const changes = METRICS.map((metric) => {
      const change = row.changes[metric];
      if (!change) return "";
      const text = inLatex(changeText(metric, change));
      return verdict(metric, change, together) ? `\\textbf{${text}}` : text;
    });
    const first = [...labels, row.seeds.length].map(inLatex);
    const second = [...first.map(() => ""), ...changes];
    return [[...first, ...values], ...(changes.some(Boolean) ? [second] : [])];
  });
  const heads = ["method", ...telling.map((name) => LABELS[name]), "seeds", ...METRICS.map(titled)];
  const line = (cells) => `${cells.join(" & ")} \\\\\n`;
  const columns = "l".repeat(heads.length - METRICS.length) + "r".repeat(METRICS.length);
  return `\\begin{tabular}{${columns}}\n\\toprule\n${line(heads.map(inLatex))}\\midrule\n${lines.map(line).join("")}\\bottomrule\n\\end{tabular}\n`;
}

function tableCsv(indices) {
  const heads = METRICS.flatMap((name) => [
    name,
    `${name} low`,
    `${name} high`,
    `${name} deviation`,
    `${name} change`,
    `${name} change low`,
    `${name} change high`,
    `${name} p`,
    `${name} p together`,
  ]);
  const rows = indices.map((index) => {
    const row = page.rows[index];
    const numbers = METRICS.flatMap((name) => [
      ...row.values[name],
      ...(row.changes[name] ?? [null, null, null, null, null]),
    ]);
    return [
      row.title,
      ...Object.keys(LABELS).map((key) => row[key]),
      row.seeds.join(" "),
      ...numbers,
    ];
  });
  return [["method", ...Object.values(LABELS), "seeds", ...heads], ...rows];
}
