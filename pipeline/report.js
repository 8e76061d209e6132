// Sorts, filters and saves the table of entities. Clients choose their names, so each text is set as text, not as HTML.
"use strict";

const FIRST = 25; // rows at the beginning and after each sort or filter
const MORE = 100;
const LONGEST = 120; // characters of a name in the table; the whole name is its tooltip
const SIZES = [["B", 1], ["kB", 1e3], ["MB", 1e6], ["GB", 1e9]];
const TIMES = [["h", 3600000], ["min", 60000], ["s", 1000]];
const ONE_LINE = 24; // characters of a text; a longer one is broken into lines
const BAD = "too tight";

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const columns = data.columns;
const body = byId("entities").tBodies[0];
const selects = columns.map((column, at) => [at, byId(`by-${column.key}`)]).filter(([, select]) => select);
let found = data.rows;
let shown = 0;
let sorted = null; // the index of a column
let isDescending = false;

// -- texts

/** Returns a number with three digits. */
function digits(number) {
  return number < 1000 ? String(Number(number.toPrecision(3))) : Math.round(number).toLocaleString("en");
}

function size(amount) {
  for (const [unit, factor] of SIZES) {
    const rounded = factor === 1 ? String(Math.round(amount)) : String(Number((amount / factor).toPrecision(3)));
    if (Number(rounded) < 1000) return `${rounded} ${unit}`;
  }
  return `${digits(amount / 1e12)} TB`;
}

function duration(ms) {
  for (const [unit, factor] of TIMES) {
    if (ms >= factor) return `${digits(ms / factor)} ${unit}`;
  }
  return `${Math.round(ms)} ms`;
}

const cut = (name) => (name.length > LONGEST ? `${[...name].slice(0, LONGEST - 1).join("")}…` : name);
const FORMS = {
  entity: (names) => names.filter((name) => name).map(cut).join(" / ") || "(no name)",
  text: (text) => cut(text),
  number: (number) => number.toLocaleString("en"),
  rate: (rate) => `${size(rate)}/s`,
  time: duration,
  share: (share) => (share < 0.995 ? `${Number((share * 100).toPrecision(2))} %` : `${Math.round(share * 100)} %`),
};

const textOf = (value, form) => (value === null ? "" : FORMS[form](value));

// -- the rows that are shown

/** Returns what a value is sorted by: a number, a text in lower case, or null, which is always last. */
function keyOf(value, form) {
  if (value === null || value === "") return null;
  if (form === "entity") return value.join("\n").toLowerCase();
  return typeof value === "string" ? value.toLowerCase() : value;
}

const orders = new Map(); // by column and direction

/** Returns the numbers of all rows in the order of a column. Rows with the same value stay in the order of their use. */
function order(at) {
  const name = `${at} ${isDescending}`;
  if (!orders.has(name)) {
    const keys = data.rows.map((row) => keyOf(row[at], columns[at].form));
    const numbers = [...keys.keys()];
    const sign = isDescending ? -1 : 1;
    const filled = numbers.filter((number) => keys[number] !== null);
    filled.sort((one, other) => (keys[one] < keys[other] ? -sign : keys[one] > keys[other] ? sign : one - other));
    orders.set(name, [...filled, ...numbers.filter((number) => keys[number] === null)]);
  }
  return orders.get(name);
}

// The texts that are searched, a line for each value.
const searched = data.rows.map((row) =>
  columns.map(({form}, at) => (form === "entity" ? row[at].join("\n") : form === "text" ? row[at] : ""))
    .filter((text) => text).join("\n").toLowerCase());

function choose() {
  const wanted = byId("find").value.trim().toLowerCase();
  const chosen = selects.filter(([, select]) => select.value).map(([at, select]) => [at, select.value]);
  const numbers = sorted === null ? [...data.rows.keys()] : order(sorted);
  const isFound = (number) => (!wanted || searched[number].includes(wanted))
    && chosen.every(([at, value]) => data.rows[number][at] === value);
  found = numbers.filter(isFound).map((number) => data.rows[number]);
  shown = 0;
  body.replaceChildren();
  draw(FIRST);
}

function draw(count) {
  const made = document.createDocumentFragment();
  for (const row of found.slice(shown, shown + count)) {
    const line = document.createElement("tr");
    columns.forEach(({form}, at) => {
      const cell = document.createElement("td");
      const text = textOf(row[at], form);
      cell.className = form;
      cell.textContent = text;
      if (text === BAD) cell.classList.add("bad");
      if (form === "text" && text.length > ONE_LINE) cell.classList.add("long");
      if (text.endsWith("…")) cell.title = form === "entity" ? row[at].join(" / ") : row[at];
      line.append(cell);
    });
    made.append(line);
  }
  body.append(made);
  shown = Math.min(found.length, shown + count);
  byId("more").hidden = shown === found.length;
  byId("count").textContent = `${shown.toLocaleString("en")} of ${found.length.toLocaleString("en")} rows`
    + (found.length < data.rows.length ? `, ${data.rows.length.toLocaleString("en")} without a filter` : "");
}

function sortBy(at, head) {
  const isNumber = !["entity", "text"].includes(columns[at].form);
  isDescending = sorted === at ? !isDescending : isNumber;
  sorted = at;
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
  choose();
}

// -- downloads

/** Returns a value of a CSV file. A spreadsheet would run a name that begins with = or the like as a formula. */
function csvOf(value) {
  const text = value === null ? "" : String(value);
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csv() {
  const parts = (value, form) => (form === "entity" ? value : [value]);
  const heads = columns.flatMap(({key, form}) => (form === "entity" ? ["user", "client_id"] : [key]));
  const rows = found.map((row) => columns.flatMap(({form}, at) => parts(row[at], form)));
  return [heads, ...rows].map((row) => row.map(csvOf).join(",")).join("\r\n") + "\r\n";
}

function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// -- the controls, which do nothing without this script

[...byId("entities").tHead.rows[0].cells].forEach((head, at) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  button.addEventListener("click", () => sortBy(at, head));
  head.append(button);
});
for (const [at, select] of selects) {
  const values = new Set(data.rows.map((row) => row[at]).filter((value) => value));
  for (const value of [...values].sort()) select.append(new Option(cut(value), value));
  select.addEventListener("change", choose);
}
byId("find").addEventListener("input", choose);
byId("more").addEventListener("click", () => {
  const next = shown;
  draw(MORE);
  body.rows[next].scrollIntoView({block: "nearest"});
});
byId("save-table").addEventListener("click", () => save(`${data.name}.csv`, "text/csv", csv()));
const quotas = byId("quotas");
if (quotas) {
  byId("save-quotas").addEventListener("click", () => save("quotas.yaml", "application/yaml", JSON.parse(quotas.textContent)));
}
for (const part of document.querySelectorAll(".scripted")) part.hidden = false;
choose();
