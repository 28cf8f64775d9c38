// SPDX-License-Identifier: Apache-2.0
// Every access point at a glance: one row each, kept in place and changed where a number changes.

import { addAccessPoint } from "./admin.js";
import { waiting } from "./agents.js";
import { spark } from "./chart.js";
import { total } from "./model.js";
import { announce, count, h, mark, milliseconds, percent, perSecond, rate, say, soon } from "./ui.js";

const TREND_SECONDS = 120;
const STATES = { ready: "ready", backup: "backup", connecting: "connecting", stopped: "stopped", unknown: "not seen yet" };

/** Title, value to sort by, text, and a test for values that deserve attention. */
const COLUMNS = [
  ["Down", (row) => row.now.down, rate],
  ["Up", (row) => row.now.up, rate],
  ["Queue delay", (row) => row.now.delay, milliseconds, (row) => row.now.delay > 2 * row.now.target && row.now.delay > 5],
  ["Feedback", (row) => row.now.feedback, percent],
  ["Marks", (row) => row.now.marked, perSecond],
  ["Drops", (row) => row.now.dropped, perSecond],
  ["ACKs filtered", (row) => row.now.filtered, perSecond],
  ["Stations", (row) => row.live?.stations, count],
  ["Flows", (row) => row.live?.flows, count],
  ["Tick p99", (row) => row.live?.loop.tick_ms_p99, milliseconds, (row) => row.live?.loop.tick_ms_p99 > 10],
  ["Missed", (row) => row.live?.loop.missed, count],
];

class Row {
  constructor(ap) {
    this.ap = ap;
    this.now = ap.now();
    this.dot = h("i", { class: "dot", "aria-hidden": "true" });
    this.state = h("span", { class: "faint" });
    this.why = h("div", { class: "why" });
    this.trend = h("canvas", { class: "spark", "aria-hidden": "true" });
    this.cells = COLUMNS.map(([title]) => h("td", { class: "number", role: "cell", "data-label": title }));
    const name = h("a", { href: `#/access-points/${encodeURIComponent(ap.name)}` }, ap.name);
    this.element = h(
      "tr", { role: "row" },
      h("th", { scope: "row", role: "rowheader" }, this.dot, name, " ", this.state, this.why),
      h("td", { role: "cell", class: "trend" }, this.trend), ...this.cells,
    );
  }

  /** The last event, if the access point is under control. */
  get live() {
    return this.ap.ready ? this.ap.event : null;
  }

  get condition() {
    return this.ap.event?.state ?? "unknown";
  }

  update() {
    const { ap } = this;
    this.now = ap.now();
    this.dot.className = `dot ${this.condition}`;
    say(this.state, STATES[this.condition] ?? this.condition);
    say(this.why, ap.problem ?? "");
    COLUMNS.forEach(([, value, text, attention], index) => {
      say(this.cells[index], text(value(this)));
      mark(this.cells[index], "warn", Boolean(attention?.(this)));
    });
  }

  draw() {
    if (!this.trend.clientWidth) return;
    const [down, up] = [this.ap.role("station"), this.ap.role("uplink")];
    spark(this.trend, this.ap.samples, [
      ["--down", (sample) => total(sample, down, "sent")], ["--up", (sample) => total(sample, up, "sent")],
    ], TREND_SECONDS);
  }
}

/** The view; `access_points` is the page's Map of them. */
export function overview(page) {
  const rows = new Map();
  let column = -1;
  let falling = false;
  const figures = ["access points", "ready", "down", "up", "longest delay", "marks", "drops", "ACKs filtered"].map((name) => {
    const value = h("dd", {}, "–");
    return { value, element: h("div", {}, h("dt", {}, name), value) };
  });
  const filter = h("input", { type: "search", id: "filter", placeholder: "Name", oninput: () => choose() });
  const state = h("select", { id: "state", onchange: () => choose() }, h("option", { value: "" }, "All states"),
    ...["ready", "backup", "connecting", "stopped"].map((each) => h("option", { value: each }, each)));
  const body = h("tbody", { role: "rowgroup" });
  const heads = ["Access point", "2 min", ...COLUMNS.map(([title]) => title)].map((title, index) => {
    if (index === 1) return h("th", { scope: "col", role: "columnheader", class: "trend" }, title);
    const button = h("button", { type: "button", onclick: () => sortBy(index === 0 ? -1 : index - 2) }, title);
    return h("th", { scope: "col", role: "columnheader", class: index ? "number" : "" }, button);
  });
  const empty = h("p", { class: "empty", hidden: true });
  const table = h("table", { class: "grid overview cards", role: "table", "aria-label": "Access points" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads)), body);
  const agents = page.may("admin") ? waiting(added) : null;
  const element = h("div", {},
    h("h1", { class: "hidden" }, "Access points"), h("dl", { class: "figures" }, ...figures.map((figure) => figure.element)), agents?.element ?? null,
    h("div", { class: "tools" }, h("label", { for: "filter" }, "Filter"), filter, h("label", { for: "state", class: "hidden" }, "State"), state,
      h("span", { class: "grow" }), key("--down", "down"), key("--up", "up"),
      page.may("admin") ? h("button", { type: "button", onclick: () => addAccessPoint(added) }, "Add an access point") : null),
    h("div", { class: "scroll" }, table), empty);

  function added(name) {
    announce(`access point ${name} is added`);
    page.list();
  }

  function key(name, text) {
    const swatch = h("i", { class: "swatch", "aria-hidden": "true" });
    swatch.style.color = `var(${name})`;
    return h("span", { class: "faint key" }, swatch, text);
  }

  function sortBy(wanted) {
    falling = wanted === column ? !falling : wanted >= 0;
    column = wanted;
    arrange();
    announce(`sorted by ${wanted < 0 ? "name" : COLUMNS[wanted][0]}, ${falling ? "largest first" : "smallest first"}`);
  }

  function arrange() {
    heads.forEach((head, index) => {
      if (index === 1) return;
      const mine = (index === 0 ? -1 : index - 2) === column;
      if (mine) head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const order = [...rows.values()].sort((a, b) => {
      const by = (row) => (column < 0 ? 0 : (COLUMNS[column][1](row) ?? -1));
      return (by(a) - by(b)) * (falling ? -1 : 1) || a.ap.name.localeCompare(b.ap.name, "en", { numeric: true }) * (column < 0 && falling ? -1 : 1);
    });
    order.forEach((row, index) => {
      if (body.children[index] !== row.element) body.insertBefore(row.element, body.children[index] ?? null);
    });
    choose();
  }

  function choose() {
    const wanted = filter.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows.values()) {
      const fits = row.ap.name.toLowerCase().includes(wanted) && (!state.value || row.condition === state.value);
      row.element.hidden = !fits;
      shown += fits;
    }
    table.hidden = !rows.size;
    empty.hidden = shown > 0;
    empty.textContent = rows.size
      ? "No access point fits this filter."
      : "No access points yet. An admin adds one here, with apctl or over REST; or the controller is started with --config.";
  }

  function update() {
    let fresh = rows.size === 0;
    for (const [name, ap] of page.access_points) {
      if (!rows.has(name)) {
        rows.set(name, new Row(ap));
        fresh = true;
      }
    }
    for (const [name, row] of rows) {
      if (page.access_points.get(name) !== row.ap) {
        row.element.remove();
        rows.delete(name);
        fresh = true;
      }
    }
    const all = [...rows.values()];
    for (const row of all) row.update();
    const sum = (name) => all.reduce((result, row) => result + (row.now[name] ?? 0), 0);
    const delays = all.map((row) => row.now.delay ?? 0);
    const texts = [count(all.length), count(all.filter((row) => row.condition === "ready").length), rate(sum("down")), rate(sum("up")),
      milliseconds(Math.max(0, ...delays)), perSecond(sum("marked")), perSecond(sum("dropped")), perSecond(sum("filtered"))];
    texts.forEach((text, index) => say(figures[index].value, text));
    // Rows that move by themselves cannot be read: only a change of the list or a click sorts them.
    if (fresh) arrange();
    else choose();
    for (const row of all) if (!row.element.hidden) row.draw();
  }

  const draw = () => update();
  soon(draw);
  document.addEventListener("theme", draw);
  return { element, title: "Access points", path: "/events", update: () => soon(draw), close: () => {
    document.removeEventListener("theme", draw);
    agents?.close();
  } };
}
