"use strict";
/* Filters, theme, buttons, and the first drawing. */
const FILTERS = ["dataset", "backbone", "shots", "classes", "split"];
const form = byId("filters");

function filters() {
  const values = Object.fromEntries(
    [...FILTERS, "words"].map((name) => [name, form.elements[name].value]),
  );
  return { ...values, together: form.elements.together.checked };
}

/* Data sets are found by both of their names: DescribableTextures and, as in its folder, dtd. */
const searched = (text) => text.toLowerCase().replaceAll(/[_-]/g, "");
const haystacks = page.rows.map((row) => searched(`${row.title} ${row.trainer} ${row.setting} ${row.place}`));
const preset = {};

/* The rows that pass the filters; what needs no shots passes any number of shots. A search
   ignores the preset filters. */
function passing(...ignored) {
  const wanted = filters();
  const words = wanted.words.split(/\s+/).map(searched).filter(Boolean);
  const names = FILTERS.filter(
    (name) =>
      wanted[name] !== "" &&
      !ignored.includes(name) &&
      !(words.length && preset[name] === wanted[name]),
  );
  return page.rows.flatMap((row, index) => {
    const fits = names.every(
      (name) => detail(row[name]) === wanted[name] || (name === "shots" && row.shots === null),
    );
    return fits && words.every((word) => haystacks[index].includes(word)) ? [index] : [];
  });
}

function fillFilters() {
  for (const name of FILTERS) {
    const values = [...new Set(page.rows.map((row) => detail(row[name])))].filter(
      (value) => name !== "shots" || value !== "-",
    );
    values.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
    form.elements[name].replaceChildren(
      element("option", { value: "" }, "any"),
      ...values.map((value) => element("option", { value }, value)),
    );
    form.elements[name].closest("label").hidden = values.length < 2;
  }
  byId("curve-metric").replaceChildren(
    ...METRICS.map((name) =>
      element("option", { value: name, selected: name === "ece" }, titled(name)),
    ),
  );
}

/* Many rows open with the test set and shots that most of them share, a point per method. */
function preselect() {
  const rows = page.rows.filter((row) => row.shots !== null);
  if (page.rows.length <= 30 || !rows.length) return;
  const place = (row) => FILTERS.map((name) => detail(row[name])).join("\n");
  const groups = [...grouped(rows, place).values()].sort((a, b) => b.length - a.length);
  for (const name of FILTERS)
    preset[name] = form.elements[name].value = detail(groups[0][0][name]);
}

function update() {
  const indices = passing();
  byId("count").textContent = `${indices.length} of ${page.rows.length} rows`;
  drawTable();
  drawOverview(indices);
  drawCurves();
}

function drawCurves() {
  drawCurve("lambda-curve", "lambda", passing());
  drawCurve("shots-curve", "shots", passing("shots"));
  drawHalves(passing("classes"));
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").textContent = dark ? "Light theme" : "Dark theme";
  redraw();
}
const isDark = () => document.documentElement.dataset.theme === "dark";

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", (event) => {
  // The search has been answered; to draw again while a row is clicked would lose the click.
  if (event.target.name === "words") return;
  delete preset[event.target.name];
  update();
});
form.elements.words.addEventListener("input", update);
form.addEventListener("reset", () => setTimeout(update));
byId("more").addEventListener("click", () => {
  table.all = true;
  drawTable();
});
byId("temperature").addEventListener("input", drawTemperature);
byId("best").addEventListener("click", () => {
  const { nll } = current.temperatures;
  byId("temperature").value = nll.indexOf(Math.min(...nll));
  drawTemperature();
});
byId("curve-metric").addEventListener("change", drawCurves);
byId("theme").addEventListener("click", () => setTheme(!isDark()));
document.addEventListener("click", (event) => {
  const { svg, csv, latex } = event.target.dataset;
  if (latex) saveFile("table.tex", tableLatex(sorted(passing())), "text/x-tex");
  if (svg && drawn.get(svg)?.[0].length)
    Plotly.downloadImage(svg, { format: "svg", filename: svg, width: 900, height: 560 });
  if (csv) saveFile(`${csv}.csv`, asCsv(csvOf.get(csv)()), "text/csv");
});
let before = false;
addEventListener("beforeprint", () => {
  before = isDark();
  setTheme(false);
});
addEventListener("afterprint", () => setTheme(before));

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
setTheme(prefersDark.matches);
prefersDark.addEventListener("change", () => setTheme(prefersDark.matches));
fillFilters();
preselect();
update();
const first = passing();
choose(first.find((index) => page.rows[index].baseline !== null) ?? first[0] ?? 0, false);
