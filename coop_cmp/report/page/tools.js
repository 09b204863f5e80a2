"use strict";
/* What all parts share: the data, elements made of text alone, numbers for people, files. */
const page = JSON.parse(document.getElementById("data").textContent);
const METRICS = Object.keys(page.metrics);

const byId = (id) => document.getElementById(id);

/* An element with attributes and children; strings become text, never markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}
const cells = (tag, values, attributes) => values.map((value) => element(tag, attributes, value));

/* Text for a chart, which would read tags in it. */
const plain = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const scale = (metric) => page.metrics[metric].scale;
const meanOf = (row, metric) => scale(metric) * row.values[metric][0];
const titled = (metric) => page.metrics[metric].title;
const unit = (metric) => (scale(metric) === 100 ? " (%)" : "");

function shown(metric, value, signed = false) {
  if (value === null) return "-";
  const text = (scale(metric) * value).toFixed(page.metrics[metric].decimals);
  const bare = Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
  return signed && value >= 0 && Number(text) !== 0 ? `+${bare}` : bare;
}

const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const detail = (value) => (value === null || value === "" ? "-" : String(value));

/* Whether a change is significant, and which way: 1 better, -1 worse, 0 neither. */
function verdict(metric, change, together) {
  const p = change[together ? 4 : 3];
  if (p === null || p >= 0.05 || Number(shown(metric, change[0]).replace("−", "-")) === 0) return 0;
  return Math.sign(change[0]) * page.metrics[metric].better;
}

async function unpack(index) {
  const bytes = Uint8Array.from(atob(page.details[index]), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function saveFile(name, text, type) {
  const link = element("a", {
    href: URL.createObjectURL(new Blob([text], { type })),
    download: name,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/* Rows of values as CSV; text that a spreadsheet would take for a formula is quoted as text. */
function asCsv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
