// Shows each event of clients/stream. Clients choose their names, so every text is set as text, never as HTML.
"use strict";

const LOST_MS = 8000; // without an event for this long, the connection counts as lost
const SAID_EVERY_MS = 30000; // a screen reader says the verdict no more often, unless it turns
const AGAIN_MS = 5000;
const BINARY = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
const DECIMAL = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]];
const LEVELS = 8;

const byId = (id) => document.getElementById(id);
let newest = null; // the last event
let shown = null; // the event that the page shows; an earlier one while it is paused
let newestAt = 0;
let isPaused = false;
let isConnected = false;
let isRefused = false;
let saidWell = null;
let saidAt = -Infinity;

// -- texts, in the words of `top` and of the log

/** Returns text with the characters that are invisible, or that turn the direction of text, as escapes. */
function printable(text) {
  return String(text).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (char) => {
    const code = char.codePointAt(0);
    if (char === "\n") return "\\n";
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

const name = (text) => (text === null ? "(several)" : printable(text) || "(none)");
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const percent = (part) => (part === null ? "-" : `${Math.round(Math.min(part, 9.99) * 100)}%`);
const clock = (time) => `${time.slice(11, 19)} UTC`;
const day = (time) => `${time.slice(0, 10)} ${clock(time)}`;
const place = (source) => printable(source.slice(source.lastIndexOf("/") + 1));

/** limit: how the limit of these bytes was written, such as "1MB" or "1MiB", or null. */
function bytes(value, limit = null) {
  for (const [unit, size] of limit === null || limit.endsWith("iB") ? BINARY : DECIMAL) {
    if (value >= size) return `${(value / size).toFixed(value >= 100 * size ? 0 : 1)} ${unit}`;
  }
  return `${value.toFixed(0)} B`;
}

/** The limit of bytes as it was written, unless it has many digits. */
function limit(row) {
  const [, number, unit] = /^([\d.]+)(\w*)$/.exec(row.limit_written);
  return `${unit && number.length <= 4 ? `${number} ${unit}` : bytes(row.limit, row.limit_written)}/s`;
}

const isOfBytes = (kind) => kind === "produce" || kind === "fetch";

function rate(kind, value, written) {
  if (value === null) return "-";
  if (kind === "request") return `${value.toFixed(1)} %`;
  return isOfBytes(kind) ? `${bytes(value, written)}/s` : `${value.toFixed(1)}/s`;
}

function duration(ms) {
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function entity(rule) {
  const parts = ["user", "client-id"].filter((key) => rule[key] !== null);
  return parts.map((key) => `${key} ${printable(rule[key])}`).join(", ");
}

// -- tables, whose rows and cells stay where they are while their texts change

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

class Table {
  /** columns: [heading, class, cell], where cell(row) is a text, or {text, sub, bar, tone}. */
  constructor(place, label, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.body = element("tbody", { role: "rowgroup" });
    // On a narrow screen rows are cards, and without its role a table is none for a screen reader then.
    const heads = columns.map(([heading, kind]) => element("th", { role: "columnheader", scope: "col", class: kind }, heading));
    const head = element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads));
    this.table = element("table", { role: "table", "aria-label": label }, head, this.body);
    byId(place).append(this.table);
  }

  show(rows, keyOf) {
    this.table.hidden = rows.length === 0;
    const before = this.rows;
    this.rows = new Map();
    let at = this.body.firstChild;
    for (const row of rows) {
      const key = JSON.stringify(keyOf(row));
      const line = before.get(key) ?? this.line();
      before.delete(key);
      this.rows.set(key, line);
      this.columns.forEach(([, , cell], index) => fill(line.cells[index], cell(row)));
      if (line === at) at = at.nextSibling;
      else this.body.insertBefore(line, at);
    }
    for (const line of before.values()) line.remove();
  }

  line() {
    const cells = this.columns.map(([heading, kind]) => {
      const bar = element("span", { class: "bar", "aria-hidden": "true" }, element("span"));
      const main = element("span", { class: "main" });
      return element("td", { role: "cell", class: kind, "data-label": heading }, main, bar, element("span", { class: "sub" }));
    });
    return element("tr", { role: "row" }, ...cells);
  }
}

function fill(cell, shown) {
  const { text, sub = "", bar = null, tone = "" } = typeof shown === "string" ? { text: shown } : shown;
  const [main, track, below] = cell.children;
  setText(main, text);
  main.title = text.length > 40 ? text : ""; // it may be cut off
  setText(below, sub);
  below.hidden = !sub;
  track.hidden = bar === null;
  if (bar !== null) {
    track.className = `bar ${bar >= 1 ? "full" : bar >= 0.8 ? "high" : ""}`;
    track.firstChild.style.width = `${Math.min(bar, 1) * 100}%`;
  }
  for (const one of ["bad", "warn", "good", "strong"]) cell.classList.toggle(one, one === tone);
  cell.classList.toggle("void", text === "");
}

// -- sections

const CLIENT = [
  ["client", "", client],
  ["kind", "w2", (row) => row.kind],
  ["broker", "number w1", (row) => (row.broker === null ? "-" : String(row.broker))],
  ["rate", "number w3", (row) => rate(row.kind, row.rate, row.limit_written)],
  ["limit", "number w3", (row) => (row.limit !== null && isOfBytes(row.kind) ? limit(row) : rate(row.kind, row.limit))],
  ["used", "w2", (row) => ({ text: percent(row.utilisation), bar: row.utilisation })],
  ["throttled", "w4 half", throttled],
  ["rule", "", (row) => (row.rule ? { text: entity(row.rule), sub: `${place(row.rule.source)}, level ${row.level} of ${LEVELS}` } : "-")],
  ["addresses", "w4", addresses],
];

/** The client-id, and below it the user, unless clients do not log in. */
function client(row) {
  return { text: name(row.client_id), sub: row.user === "ANONYMOUS" ? "" : `user ${name(row.user)}`, tone: "strong" };
}

function throttled(row) {
  const seconds = row.throttle_seconds_last_minute;
  const sub = seconds ? `${Math.round(seconds / 0.6)}% of the last minute` : "";
  if (row.throttled) return { text: `for ${duration(row.throttled_for_ms)}`, sub, tone: "bad" };
  return { text: row.enforcement === "observe" ? "no, observed only" : "no", sub };
}

function addresses(row) {
  const found = row.addresses.slice(0, 2).join(", ") || "-";
  const others = row.addresses.length > 2 ? `and ${row.addresses.length - 2} others, ` : "";
  return { text: printable(found), sub: `${others}${count(row.connections, "connection")}` };
}

const tables = {
  throttled: new Table("throttled", "Throttled clients", CLIENT),
  near: new Table("near", "Clients near a limit", CLIENT),
  brokers: new Table("brokers", "Brokers", [
    ["broker", "w2", (row) => ({ text: row.node_id === null ? "-" : String(row.node_id), tone: "strong" })],
    ["address", "", (row) => row.addresses.join(", ")],
    ["state", "", (row) => (row.bypass ? { text: "bypassed", tone: "bad", sub: `sends clients to ${printable(row.bypass)}` } : row.reached ? { text: "reached", tone: "good" } : { text: `not reached: ${row.reason}`, tone: "bad", sub: printable(row.detail) })],
  ]),
  changes: new Table("changes", "Changes of quotas, the newest first", [
    ["time", "w5", (row) => day(row.time)],
    ["entity", "", (row) => ({ text: printable(row.entity), tone: "strong" })],
    ["change", "", (row) => row.changed.map((one) => `${one.key}: ${one.old ?? "none"} → ${one.new ?? "none"}`).join(", ") || "none"],
    ["by", "", (row) => ({ text: printable(row.principal), sub: printable(`${row.address} at ${row.listener}`) })],
    ["result", "w2", (row) => ({ text: row.result, tone: row.result === "applied" ? "" : "warn" })],
  ]),
  queues: new Table("queues", "Requests that wait for each broker, by level", [
    ["listener", "w3", (row) => printable(row.listener)],
    ["broker", "w4", (row) => row.upstream],
    ["slots in use", "w3", (row) => ({ text: `${row.in_flight} of ${row.max_in_flight}`, bar: row.in_flight / row.max_in_flight })],
    ["waiting, by level", "", (row) => row.queue_sizes.map((size, level) => `level ${level}: ${size}`).join(", ")],
    ["mean response, by level", "", (row) => row.means.map((ms, level) => `level ${level}: ${ms.toFixed(0)} ms`).join(", ")],
  ]),
  users: new Table("users", "Users with the highest costs", [
    ["listener", "w3", (row) => printable(row.listener)],
    ["user", "", (row) => ({ text: printable(row.identity), tone: "strong" })],
    ["level", "number w2", (row) => String(row.level)],
    ["share of cost", "w3", (row) => percent(row.share)],
  ]),
};

function isWanted(row) {
  const wanted = byId("filter").value.toLowerCase();
  const parts = [row.kind, row.user, row.client_id, row.listener, row.rule?.source, ...row.addresses];
  return !wanted || parts.some((part) => part && part.toLowerCase().includes(wanted));
}

/** Compares in coarse steps, so that two clients at their limits do not change places with each event. */
function order(one, other) {
  const rank = (row) => [-Math.round(row.throttle_seconds_last_minute / 6), -Math.round((row.utilisation ?? 0) * 10)];
  const [a, b] = [rank(one), rank(other)];
  const names = (row) => [row.client_id, row.user, row.kind, row.broker].join("\n");
  return a[0] - b[0] || a[1] - b[1] || (names(one) < names(other) ? -1 : 1);
}

function showClients(id, section, nothing) {
  const shown = section.rows.filter(isWanted).sort(order);
  tables[id].show(shown, (row) => [row.kind, row.user, row.client_id, row.broker, row.rule]);
  const rows = section.total === section.clients ? "" : `, in ${count(section.total, "row")}: one for each kind of quota and broker`;
  const cut = section.total > section.rows.length ? `; the first ${section.rows.length} rows are shown` : "";
  setText(byId(`n-${id}`), section.total ? `${count(section.clients, "client")}${rows}${cut}` : "");
  setText(byId(`e-${id}`), shown.length ? "" : section.total ? "No client here matches the filter." : nothing);
  byId(`e-${id}`).hidden = shown.length > 0;
}

function showReload(reload) {
  setText(byId("n-reload"), day(reload.time));
  setText(byId("reload"), reload.message);
  byId("reload").classList.toggle("bad", reload.event === "config_refused");
  const more = reload.more_faults ? [`and ${reload.more_faults} more`] : [];
  const restart = reload.needs_restart.map((key) => `${key} has changed, which takes effect only at the next start`);
  const lines = [...reload.faults, ...more, ...restart];
  byId("faults").hidden = lines.length === 0;
  if (byId("faults").dataset.shown !== lines.join("\n")) {
    byId("faults").dataset.shown = lines.join("\n");
    byId("faults").replaceChildren(...lines.map((line) => element("li", {}, line)));
  }
}

function showQueues(queues) {
  byId("s-queues").hidden = queues === null;
  if (queues === null) return;
  const brokers = queues.flatMap((one) => one.brokers.map((broker) => ({ ...broker, listener: one.listener, means: one.average_response_ms })));
  const users = queues.flatMap((one) => one.users.map((user) => ({ ...user, listener: one.listener })));
  const waiting = brokers.flatMap((one) => one.queue_sizes).reduce((sum, size) => sum + size, 0);
  setText(byId("n-queues"), `${count(waiting, "request")} waiting`);
  setText(byId("e-users"), users.length ? "" : "No user has caused cost yet.");
  tables.queues.show(brokers, (row) => [row.listener, row.upstream]);
  tables.users.show(users, (row) => [row.listener, row.identity]);
}

function rulesText({ of_file, source, of_source, hidden, connected }) {
  const file = `${count(of_file, "rule")} of the file`;
  if (source === null) return `${file}.`;
  const more = hidden ? `, of which the file hides ${hidden}` : "";
  return `${file}, ${count(of_source, "rule")} from ${printable(source)}${more}${connected ? "" : ", which does not answer"}.`;
}

function show(status) {
  setText(byId("verdict"), status.verdict);
  byId("verdict").className = status.well ? "well" : "ill";
  setText(byId("version"), status.version ?? "");
  document.title = `${status.well ? "" : "Not well: "}${status.clients.throttled.clients} throttled – kafka-quota-proxy`;
  showClients("throttled", status.clients.throttled, "No client is throttled.");
  showClients("near", status.clients.near, "No other client uses 80% of its limit.");
  setText(byId("n-brokers"), status.more_brokers ? `and ${status.more_brokers} more` : "");
  tables.brokers.show(status.brokers, (row) => row.addresses);
  showReload(status.reload);
  setText(byId("rules"), rulesText(status.rules));
  byId("s-changes").hidden = status.changes === null;
  if (status.changes !== null) {
    setText(byId("n-changes"), status.changes.length ? "through this proxy, since its start" : "");
    setText(byId("e-changes"), status.changes.length ? "" : "No quota was changed through this proxy since its start.");
    tables.changes.show(status.changes, (row) => [row.time, row.entity, row.changed]);
  }
  showQueues(status.queues);
  const now = performance.now();
  if (saidWell !== status.well || now - saidAt >= SAID_EVERY_MS) say(status.verdict, status.well);
}

/** Lets a screen reader say a text. */
function say(text, well) {
  setText(byId("said"), text);
  saidWell = well;
  saidAt = performance.now();
}

// -- the connection

function showLink() {
  const age = performance.now() - newestAt;
  const isLost = !isConnected || age > LOST_MS;
  byId("link").className = isLost && newest !== null ? "lost" : "";
  if (newest === null) {
    const why = isRefused ? "The proxy refuses it: too many status pages may be open. " : "";
    setText(byId("link"), isConnected ? "Waiting for data" : `No connection yet. ${why}Trying again.`);
  } else if (isLost) {
    const old = age < 120000 ? `${Math.floor(age / 1000)} s` : duration(age);
    setText(byId("link"), `Connection lost. The data is ${old} old. Trying again.`);
    if (saidWell !== "lost") say("Connection to the proxy lost", "lost");
  } else {
    setText(byId("link"), isPaused ? `Paused at ${clock(shown.time)}` : `Live, as of ${clock(newest.time)}`);
  }
}

function update() {
  if (newest !== null && !isPaused) {
    shown = newest;
    show(newest);
  }
  showLink();
}

function connect() {
  const stream = new EventSource("clients/stream");
  stream.onopen = () => { isConnected = true; };
  stream.onmessage = (event) => {
    newest = JSON.parse(event.data);
    newestAt = performance.now();
    isConnected = true;
    update();
  };
  stream.onerror = () => {
    isConnected = false;
    isRefused = stream.readyState === EventSource.CLOSED;
    showLink();
    if (isRefused) setTimeout(connect, AGAIN_MS); // otherwise the browser tries again
  };
}

byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", () => { if (shown !== null) show(shown); });
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  byId("pause").setAttribute("aria-pressed", String(isPaused));
  update();
});
setInterval(showLink, 1000);
connect();
