"use strict";
/* Curves over lambda and shots, and base against new classes. */
const DASHES = ["solid", "longdash", "dashdot", "longdashdot"]; // of curves of one colour and symbol
const levels = (rows, key) => [...new Set(rows.map((row) => row[key]))].sort((a, b) => a - b);

/* Lines over a label, one per family of rows that differ in it alone, and dashed lines for those without it. */
function drawCurve(id, over, indices) {
  const metric = byId("curve-metric").value;
  const rows = indices.map((index) => page.rows[index]);
  const level = (row) => row[over];
  const levelled = rows.filter((row) => level(row) !== null);
  const families = [...grouped(levelled, (row) => row.families[over]).values()].filter(
    (family) => levels(family, over).length > 1,
  );
  const members = families.flat();
  const ticks = levels(members, over);
  const references =
    over === "lambda"
      ? members.flatMap((row) => (row.baseline === null ? [] : [page.rows[row.baseline]]))
      : rows.filter((row) => row.shots === null);
  const several = new Set(members.map((row) => row.setting)).size > levels(members, "shots").length;
  const named = (row) => {
    const name = over === "lambda" ? row.title.replace(/, λ = .*$/, "") : row.title;
    const told = several || (over === "lambda" && telling.includes("shots"));
    return plain(told ? `${name}, ${over === "shots" ? row.dataset : row.setting}` : name);
  };
  const look = ([row]) => `${colour(row)} ${symbol(row)}`;
  const alike = grouped(families, look);
  const dash = (family) => {
    const place = alike.get(look(family)).indexOf(family);
    return place || family[0].term ? DASHES[place % DASHES.length] : "dot";
  };
  const traces = families.map((family) => {
    const points = [...family].sort((a, b) => level(a) - level(b));
    return {
      type: "scatter",
      mode: "lines+markers",
      name: named(points[0]),
      x: points.map((row) => String(level(row))),
      y: points.map((row) => meanOf(row, metric)),
      error_y: bars(points, metric),
      line: { color: colour(points[0]), dash: dash(family), width: 1.6 },
      marker: { symbol: symbol(points[0]), size: 7 },
      hoverinfo: "text",
      text: points.map(
        (row) =>
          `${plain(row.title)}<br>${plain(row.setting)}<br>${valueText(row, metric)}, ${row.seeds.length} seeds`,
      ),
    };
  });
  for (const row of ticks.length ? new Set(references) : [])
    traces.push({
      type: "scatter",
      mode: "lines",
      name: named(row),
      x: ticks.map(String),
      y: ticks.map(() => meanOf(row, metric)),
      line: { color: colour(row), dash: "dash", width: 1.6 },
      hoverinfo: "name+y",
    });
  draw(
    id,
    traces,
    {
      xaxis: axis(over === "lambda" ? "λ" : "shots", {
        type: "category",
        categoryorder: "array",
        categoryarray: ticks.map(String),
      }),
      yaxis: axis(titled(metric) + unit(metric)),
      legend: BELOW,
    },
    [
      ["method", "setting", over, metric, "low", "high", "deviation", "seeds"],
      ...members.map((row) => [row.title, row.setting, level(row), ...row.values[metric], row.seeds.length]),
    ],
    traces.length
      ? `${families.length} curves over ${ticks.join(", ")}.`
      : `No rows here differ only in ${over === "lambda" ? "λ" : "their shots"}.`,
  );
}

/* Each method on the base and on the new classes, and the harmonic mean of its accuracies. */
function drawHalves(indices) {
  const metric = byId("curve-metric").value;
  const rows = indices.map((index) => page.rows[index]);
  const pairs = [...grouped(rows, (row) => row.families.classes).values()]
    .map((family) => ["base", "new"].map((half) => family.find((row) => row.classes === half)))
    .filter(([base, other]) => base && other);
  const place = (row) => `, ${row.dataset}, ${row.backbone}, ${detail(row.shots)} shots`;
  const several = new Set(pairs.map(([base]) => place(base))).size > 1;
  const names = pairs.map(([base]) => plain(base.title + (several ? place(base) : "")));
  const half = (name, rows, color) => ({
    type: "bar",
    name,
    x: names,
    y: rows.map((row) => meanOf(row, metric)),
    error_y: bars(rows, metric),
    marker: { color },
    hoverinfo: "text",
    hovertext: rows.map((row) => `${plain(row.title)}, ${name}<br>${valueText(row, metric)}`),
  });
  const means = pairs.map((pair) => harmonic(...pair.map((row) => row.values.accuracy[0])));
  const members = (k) => pairs.map((pair) => pair[k]);
  const traces = ["base", "new"].map((name, k) => half(name, members(k), COLOURS[4 * k]));
  if (metric === "accuracy")
    traces.push({
      type: "bar",
      name: "harmonic mean",
      x: names,
      y: means.map((mean) => 100 * mean),
      marker: { color: COLOURS[7] },
    });
  draw(
    "halves-chart",
    pairs.length ? traces : [],
    {
      barmode: "group",
      xaxis: { type: "category" },
      yaxis: axis(titled(metric) + unit(metric)),
      legend: ABOVE,
    },
    [
      ["method", "setting", `base ${metric}`, `new ${metric}`, "harmonic mean of accuracies"],
      ...pairs.map(([base, other], k) => [base.title, base.setting, base.values[metric][0], other.values[metric][0], means[k]]),
    ],
    pairs.length
      ? `${pairs.length} methods on both halves of the classes.`
      : "No method here was tested on base and on new classes.",
  );
}

const harmonic = (a, b) => (a + b > 0 ? (2 * a * b) / (a + b) : 0);
