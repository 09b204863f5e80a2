"use strict";
/* Curves over lambda and shots, and base against new classes. */
const DASHES = ["solid", "longdash", "dashdot", "longdashdot"]; // of curves of one colour and symbol
const levels = (rows, key) => [...new Set(rows.map((row) => row[key]))].sort((a, b) => a - b);

/* Lines over a label, one per family of rows that differ in it alone, and dashed lines for those without it. */
function drawCurve(id, over, indices) {
  const metric = byId("curve-metric").value;
  const rows = indices.map((index) => page.rows[index]);
  const families = [
    ...grouped(
      rows.filter((row) => row[over] !== null),
      (row) => row.families[over],
    ).values(),
  ].filter((family) => levels(family, over).length > 1);
  const ticks = levels(families.flat(), over);
  const references = new Set(
    over === "lambda"
      ? families
          .flat()
          .filter((row) => row.baseline !== null)
          .map((row) => page.rows[row.baseline])
      : rows.filter((row) => row.shots === null),
  );
  const places = families.flat().map(setting);
  const several = new Set(places).size > new Set(families.flat().map((row) => row.shots)).size;
  const named = (row) =>
    plain(
      (over === "lambda" ? row.title.replace(/, λ = .*$/, "") : row.title) +
        (several || (over === "lambda" && telling.includes("shots"))
          ? `, ${over === "shots" ? row.dataset : setting(row)}`
          : ""),
    );
  const line = (row, dash) => ({ color: colour(row), dash, width: 1.6 });
  const look = ([row]) => `${colour(row)} ${symbol(row)}`;
  const alike = grouped(families, look);
  const dash = (family) => {
    const place = alike.get(look(family)).indexOf(family);
    return place || family[0].term ? DASHES[place % DASHES.length] : "dot";
  };
  const traces = families.map((family) => {
    const members = ticks.flatMap((level) => family.filter((row) => row[over] === level));
    return {
      type: "scatter",
      mode: "lines+markers",
      name: named(members[0]),
      x: members.map((row) => String(row[over])),
      y: members.map((row) => scale(metric) * row.values[metric][0]),
      error_y: bars(
        members.map((row) => row.values[metric]),
        metric,
      ),
      line: line(members[0], dash(family)),
      marker: { symbol: symbol(members[0]), size: 7 },
      hoverinfo: "text",
      text: members.map(
        (row) =>
          `${plain(row.title)}<br>${plain(setting(row))}<br>${valueText(row, metric)}, ${row.seeds.length} seeds`,
      ),
    };
  });
  for (const row of ticks.length ? references : [])
    traces.push({
      type: "scatter",
      mode: "lines",
      name: named(row),
      x: ticks.map(String),
      y: ticks.map(() => scale(metric) * row.values[metric][0]),
      line: line(row, "dash"),
      hoverinfo: "name+y",
    });
  const csv = [
    ["method", "setting", over, metric, "low", "high", "deviation", "seeds"],
    ...families
      .flat()
      .map((row) => [row.title, setting(row), row[over], ...row.values[metric], row.seeds.length]),
  ];
  const words = traces.length
    ? `${families.length} curves over ${ticks.join(", ")}.`
    : `No rows here differ only in ${over === "lambda" ? "λ" : "their shots"}.`;
  draw(
    id,
    traces,
    {
      xaxis: {
        title: { text: over === "lambda" ? "λ" : "shots" },
        type: "category",
        categoryorder: "array",
        categoryarray: ticks.map(String),
      },
      yaxis: { title: { text: titled(metric) + unit(metric) } },
      showlegend: true,
      legend: BELOW,
    },
    csv,
    words,
  );
}

/* Each method on the base and on the new classes, and the harmonic mean of its accuracies. */
function drawHalves(indices) {
  const metric = byId("curve-metric").value;
  const families = [
    ...grouped(
      indices.map((index) => page.rows[index]),
      (row) => row.families.classes,
    ).values(),
  ];
  const pairs = families
    .map((family) => ["base", "new"].map((half) => family.find((row) => row.classes === half)))
    .filter(([base, other]) => base && other);
  const several =
    new Set(pairs.map(([base]) => `${base.dataset} ${base.backbone} ${base.shots}`)).size > 1;
  const names = pairs.map(([base]) =>
    plain(
      base.title +
        (several ? `, ${base.dataset}, ${base.backbone}, ${detail(base.shots)} shots` : ""),
    ),
  );
  const half = (place, name, shade) => ({
    type: "bar",
    name,
    x: names,
    y: pairs.map((pair) => scale(metric) * pair[place].values[metric][0]),
    error_y: bars(
      pairs.map((pair) => pair[place].values[metric]),
      metric,
    ),
    marker: { color: shade },
    hoverinfo: "text",
    hovertext: pairs.map(
      (pair) => `${plain(pair[place].title)}, ${name}<br>${valueText(pair[place], metric)}`,
    ),
  });
  const means = pairs.map((pair) => harmonic(...pair.map((row) => row.values.accuracy[0])));
  const traces = pairs.length ? [half(0, "base", COLOURS[0]), half(1, "new", COLOURS[4])] : [];
  if (pairs.length && metric === "accuracy")
    traces.push({
      type: "bar",
      name: "harmonic mean",
      x: names,
      y: means.map((mean) => 100 * mean),
      marker: { color: COLOURS[7] },
    });
  const csv = [
    ["method", "setting", `base ${metric}`, `new ${metric}`, "harmonic mean of accuracies"],
    ...pairs.map(([base, other], k) => [
      base.title,
      setting(base),
      base.values[metric][0],
      other.values[metric][0],
      means[k],
    ]),
  ];
  draw(
    "halves-chart",
    traces,
    {
      barmode: "group",
      xaxis: { type: "category" },
      yaxis: { title: { text: titled(metric) + unit(metric) } },
      showlegend: true,
      legend: ABOVE,
    },
    csv,
    pairs.length
      ? `${pairs.length} methods on both halves of the classes.`
      : "No method here was tested on base and on new classes.",
  );
}

const harmonic = (a, b) => (a + b > 0 ? (2 * a * b) / (a + b) : 0);
