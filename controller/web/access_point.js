// SPDX-License-Identifier: Apache-2.0
// One access point: figures, charts over live samples or history, ports, classes and weights, flows, stations, settings.

import { Problem, ask, query } from "./api.js";
import { changes } from "./changes.js";
import { Charts } from "./chart.js";
import { MEASURES, fromHistory, largest, total } from "./model.js";
import { count, h, mark, milliseconds, number, percent, perSecond, rate, say, soon } from "./ui.js";
import { settings } from "./settings.js";
import { flows, stations } from "./tables.js";
import { weights } from "./weights.js";

/** Text, seconds, resolution of history; up to ten minutes live samples follow. */
const RANGES = [["2 min", 120, 1], ["10 min", 600, 1], ["1 h", 3600, 10], ["1 day", 86400, 60], ["7 days", 604800, 600]];
const FIGURES = ["down", "up", "queue delay", "feedback", "marks", "drops", "ACKs filtered", "active flows", "stations", "tick p99", "missed ticks"];

/** A value of a measure with its unit; of a counter, its rate per second. */
function written({ unit, counter }, value) {
  if (value == null) return "–";
  if (unit === "bits_per_second" || (unit === "bytes" && counter)) return rate(value);
  if (unit === "milliseconds") return milliseconds(value);
  if (unit === "ratio") return percent(value);
  return counter ? perSecond(value) : number(value);
}

export function accessPoint(page, ap) {
  const path = `/access-points/${encodeURIComponent(ap.name)}`;
  let range = 0;
  let chosen = null;
  let history = [];
  let timer = 0;
  let open = true;
  const wanted = (port) => chosen == null || port === chosen;

  const charts = new Charts();
  const pick = (name, how) => (sample) => how(sample, wanted, name);
  const direction = (role) => (sample) => {
    const mine = ap.role(role);
    return total(sample, (port) => mine(port) && wanted(port), "sent");
  };
  const delay = (role) => (sample) => {
    const mine = ap.role(role);
    return largest(sample, (port) => mine(port) && wanted(port), "delay");
  };
  const target = (role) => () => {
    const ports = (ap.event?.ports ?? []).filter((port) => port.role === role && wanted(port.port) && port.regulated);
    return ports.length ? Math.min(...ports.map((port) => port.target_ms)) : null;
  };
  const chartsElement = h("div", { class: "charts" },
    charts.add("Throughput", rate, 1e5, [
      { name: "down", colour: "--down", value: direction("station") }, { name: "up", colour: "--up", value: direction("uplink") },
    ]),
    charts.add("Queue delay", milliseconds, 10, [
      { name: "down", colour: "--down", value: delay("station") }, { name: "target", colour: "--down", dash: true, value: target("station") },
      { name: "up", colour: "--up", value: delay("uplink") }, { name: "target", colour: "--up", dash: true, value: target("uplink") },
    ]),
    charts.add("Feedback terms", percent, 0.01, [
      { name: "device", colour: "--device", value: pick("device", largest) },
      { name: "downlink", colour: "--down", value: pick("downlink", largest) },
      { name: "uplink", colour: "--up", value: pick("uplink", largest) },
      { name: "flow", colour: "--flow", value: pick("flow", largest) },
    ]),
    charts.add("Marks, drops, ACKs filtered", perSecond, 5, [
      { name: "marks", colour: "--marks", value: pick("marked", total) },
      { name: "drops", colour: "--drops", value: pick("dropped", total) },
      { name: "ACKs filtered", colour: "--acks", value: pick("filtered", total) },
    ]),
  );

  // One more chart, of a measure that the user chooses.
  let measure = { name: "queue_packets", unit: "packets", counter: false };
  const measurePick = h("select", { id: "measure", onchange: () => {
    measure = MEASURES.find((each) => each.name === measurePick.value) ?? measure;
    soon(draw);
  } });
  const shownMeasure = (sample) => (measure.counter ? total : largest)(sample, wanted, `measure ${measure.name}`);
  const more = charts.add("Measure", (value) => written(measure, value), 0.01, [{ name: "", colour: "--other", value: shownMeasure }]);
  more.querySelector("h3").append(h("label", { for: "measure", class: "hidden" }, "What is shown"), " ", measurePick);
  more.classList.add("chosen");
  chartsElement.append(more);
  async function offer() {
    try {
      const { body } = await ask("GET", "/measures");
      MEASURES.splice(0, MEASURES.length, ...body.filter((each) => each.level === "port" || each.level === "class"));
      measurePick.replaceChildren(...MEASURES.map((each) => h("option", { value: each.name, selected: each.name === measure.name },
        `${each.text}${each.level === "class" ? (each.counter ? ", all classes" : ", largest class") : ""}`)));
      load();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      more.hidden = true;
    }
  }

  const dot = h("i", { class: "dot", "aria-hidden": "true" });
  const state = h("span", { class: "faint" });
  const why = h("p", { class: "why notice", hidden: true });
  const targets = h("p", { class: "faint small", hidden: true });
  const mistaken = h("p", { class: "why notice", role: "status", hidden: true });
  const values = FIGURES.map(() => h("dd", {}, "–"));
  const figures = h("dl", { class: "figures" }, ...FIGURES.map((name, index) => h("div", {}, h("dt", {}, name), values[index])));
  const ranges = RANGES.map(([text], index) =>
    h("button", { type: "button", "aria-pressed": String(index === range), onclick: () => show(index) }, text));
  const portPick = h("select", { id: "port", onchange: () => {
    chosen = portPick.value === "" ? null : Number(portPick.value);
    update();
  } }, h("option", { value: "" }, "All ports"));
  const failed = h("span", { class: "why", role: "status" });

  const portRows = new Map();
  const portBody = h("tbody", { role: "rowgroup" });
  const PORT_COLUMNS = ["Port", "Link", "Sent", "Of capacity", "Packets queued", "Delay", "Target", "Active flows", "Device term", "Marks", "Drops", "ACKs filtered"];
  const portTable = h("table", { class: "grid", role: "table", "aria-label": "Ports" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...PORT_COLUMNS.map((title, index) =>
      h("th", { scope: "col", role: "columnheader", class: index > 1 ? "number" : "" }, title)))), portBody);

  const parts = [weights(page, ap, path, wanted, marked), flows(page, ap, path), stations(page, ap, path, (port) => parts[1].filter(port)), settings(page, ap, path), changes(page, ap, path)];
  const element = h("div", {},
    h("nav", { class: "crumbs", "aria-label": "Where" }, h("a", { href: "#/" }, "Access points"), " / ", h("h1", {}, ap.name), dot, state),
    why, figures,
    h("div", { class: "tools" }, h("div", { class: "segments", role: "group", "aria-label": "Time range" }, ...ranges),
      h("label", { for: "port", class: "hidden" }, "Port"), portPick, failed),
    chartsElement, parts[0].element,
    h("section", { "aria-label": "Ports" }, h("h2", {}, "Ports"), mistaken, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of ports" }, portTable), targets),
    parts[1].element, parts[2].element, parts[3].element, parts[4].element);
  // A phone's page is many screens long.
  const sections = [...element.children].filter((each) => each.tagName === "SECTION");
  element.firstChild.after(h("nav", { class: "jump", "aria-label": "Sections" }, ...sections.map((section) => {
    section.tabIndex = -1;
    return h("button", { type: "button", class: "link", onclick: () => {
      section.scrollIntoView();
      section.focus({ preventScroll: true });
    } }, section.ariaLabel);
  })));

  function marked(text) {
    charts.markers.push({ time: Date.now() / 1000, text });
    if (charts.markers.length > 8) charts.markers.shift();
    soon(draw);
  }

  function show(index) {
    range = index;
    ranges.forEach((button, each) => button.setAttribute("aria-pressed", String(each === index)));
    history = [];
    soon(draw);
    load();
  }

  /** Load history, and again when there is more of it: it is written every ten seconds. */
  async function load() {
    clearTimeout(timer);
    const [, seconds, resolution] = RANGES[range];
    const asked = range;
    try {
      const { body } = await ask("GET", `${path}/history${query({ start: -seconds, resolution })}`);
      if (!open || asked !== range) return;
      history = fromHistory(body);
      say(failed, "");
      soon(draw);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (open && asked === range) say(failed, `History: ${problem.message}`);
    }
    if (open) timer = setTimeout(load, Math.max(11, resolution) * 1000);
  }

  function draw() {
    const [, seconds, resolution] = RANGES[range];
    const from = history.at(-1)?.time ?? 0;
    // Live samples follow those of history; they are of one second, too fine for the long ranges.
    const live = resolution === 1 ? ap.samples.filter((sample) => sample.time > from + 0.5) : [];
    charts.show([...history, ...live], seconds, resolution);
  }

  function portRow(port) {
    const name = h("th", { scope: "row", role: "rowheader" }, `${port.port} ${port.role}`);
    const cells = PORT_COLUMNS.slice(1).map((_, index) => h("td", { role: "cell", class: index ? "number" : "" }));
    const meter = h("span", { class: "meter", "aria-hidden": "true" }, h("i"));
    cells[2].append(meter, h("span"));
    return { cells, meter, element: h("tr", { role: "row" }, name, ...cells) };
  }

  function updatePorts(event) {
    for (const [number, { element, choice }] of portRows) {
      if (event.ports.some((port) => port.port === number)) continue;
      element.remove();
      choice.remove();
      portRows.delete(number);
      if (chosen === number) chosen = null;
    }
    for (const port of event.ports) {
      if (!portRows.has(port.port)) {
        const row = portRow(port);
        row.choice = h("option", { value: port.port }, `Port ${port.port}, ${port.role}`);
        portRows.set(port.port, row);
        portBody.append(row.element);
        portPick.append(row.choice);
      }
      const { cells, meter } = portRows.get(port.port);
      const last = ap.last?.ports.get(port.port);
      const capacity = port.capacity_used_bps;
      const used = last && capacity ? last.sent / capacity : null;
      const seen = ap.ready ? port : {};
      const texts = [port.link, rate(last?.sent), null, count(seen.queue_packets), milliseconds(seen.delay_ms),
        port.regulated ? milliseconds(port.target_ms) : "not regulated", count(seen.flows_active), percent(seen.device),
        perSecond(last?.marked), perSecond(last?.dropped), perSecond(last?.filtered)];
      texts.forEach((text, index) => text != null && say(cells[index], text));
      mark(cells[0], "warn", port.link === "down");
      say(cells[2].lastChild, used == null ? "–" : `${count(used * 100)} % of ${rate(capacity)}`);
      meter.firstChild.style.width = `${Math.min(100, 100 * (used ?? 0))}%`;
    }
    const wrong = event.ports.filter((port) => port.capacity_problem);
    mistaken.hidden = !wrong.length;
    say(mistaken, wrong.map((port) => `Port ${port.port}: ${port.capacity_problem}.`).join(" "));
    const raised = ap.ready ? event.ports.filter((port) => port.regulated && port.target_reason) : [];
    targets.hidden = !raised.length;
    say(targets, raised.map((port) => `Target of port ${port.port}, ${milliseconds(port.target_ms)}: ${port.target_reason}.`).join(" "));
  }

  /** The desired revision, and since when another one is in effect. */
  function revision(event) {
    if (event.differs_since == null) return `revision ${event.revision}`;
    const since = new Date(event.differs_since * 1000).toLocaleString();
    return `revision ${event.revision} is not in effect since ${since} (${event.revision_in_effect ?? "none"} is)`;
  }

  function update() {
    const { event } = ap;
    if (!event) return;
    const now = ap.now();
    dot.className = `dot ${event.state}`;
    const of = page.addresses.get(ap.name) ? `, ${page.addresses.get(ap.name)}` : "";
    say(state, `${event.state}${of}, ${revision(event)}`);
    why.hidden = !ap.problem;
    say(why, ap.problem ?? "");
    const active = event.ports.reduce((result, port) => result + port.flows_active, 0);
    const loop = ap.ready ? event.loop : {};
    const texts = [rate(now.down), rate(now.up), milliseconds(now.delay), percent(now.feedback), perSecond(now.marked),
      perSecond(now.dropped), perSecond(now.filtered), ap.ready ? `${count(active)} of ${count(event.flows)}` : count(null), count(ap.ready ? event.stations : null),
      milliseconds(loop.tick_ms_p99), count(loop.missed)];
    texts.forEach((text, index) => say(values[index], text));
    mark(values[2], "warn", now.delay > 2 * now.target && now.delay > 5);
    updatePorts(event);
    parts[0].update();
    parts[4].update();
    draw();
  }

  offer();
  load();
  soon(update);
  return {
    element, title: ap.name, path: `${path}/events`, update: () => soon(update),
    close() {
      open = false;
      clearTimeout(timer);
      charts.close();
      for (const part of parts) part.close?.();
    },
  };
}
