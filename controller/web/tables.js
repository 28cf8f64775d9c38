// SPDX-License-Identifier: Apache-2.0
// Flows and stations, a page of each at a time, and one flow in a dialog. The server filters and sorts.

import { Problem, ask, query } from "./api.js";
import { Charts } from "./chart.js";
import { dialog, field } from "./forms.js";
import { ago, announce, className, count, end, h, percent, protocol, rate, say, size } from "./ui.js";
import { slider } from "./weights.js";

const PAGE = 50;
const FLOWS_SECONDS = 2;
const STATIONS_SECONDS = 10;

/** A table that reloads its rows: `columns` are [title, text(row), class]; it does not reload while it is out of sight. */
function pages({ title, path, parameters, columns, seconds, choose, empty, tools }) {
  let offset = 0;
  let timer = 0;
  let closed = false;
  let seen = false;
  let asked = 0;
  const rows = [];
  const body = h("tbody", { role: "rowgroup" });
  const note = h("p", { class: "empty", hidden: true });
  const many = h("span", { class: "faint" });
  const back = h("button", { type: "button", onclick: () => turn(-PAGE) }, "Previous");
  const forth = h("button", { type: "button", onclick: () => turn(PAGE) }, "Next");
  const table = h("table", { class: "grid", role: "table", "aria-label": title },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...columns.map(([name, , kind]) => h("th", { scope: "col", role: "columnheader", class: kind }, name)))), body);
  const element = h("section", { "aria-label": title }, h("h2", {}, title), h("div", { class: "tools" }, ...(tools ?? []), h("span", { class: "grow" }), many, back, forth),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${title}` }, table), note);

  function row() {
    const made = { cells: columns.map(([, , kind], index) => h(index ? "td" : "th", index ? { role: "cell", class: kind } : { role: "rowheader", scope: "row" })) };
    made.text = made.cells[0];
    if (choose) {
      made.text = h("button", { type: "button", class: "link", onclick: () => choose(made.entry) });
      made.cells[0].append(made.text);
    }
    made.element = h("tr", { role: "row" }, ...made.cells);
    return made;
  }

  function show(entries, total) {
    entries.forEach((entry, index) => {
      const made = (rows[index] ??= row());
      made.entry = entry;
      columns.forEach(([, text], column) => say(column ? made.cells[column] : made.text, text(entry)));
      if (!made.element.isConnected) body.append(made.element);
    });
    for (const made of rows.splice(entries.length)) made.element.remove();
    say(many, total ? `${count(offset + 1)} to ${count(offset + entries.length)} of ${count(total)}` : "");
    back.disabled = offset === 0;
    forth.disabled = offset + PAGE >= total;
    back.hidden = forth.hidden = total <= PAGE && offset === 0;
    table.hidden = !entries.length;
    note.hidden = entries.length > 0;
    note.className = "empty";
    say(note, empty());
  }

  async function load() {
    clearTimeout(timer);
    const number = ++asked;
    try {
      const { body: entries, total } = await ask("GET", path + query({ ...parameters(), limit: PAGE, offset: offset || "" }));
      if (closed || number !== asked) return;
      if (!entries.length && offset) offset = Math.max(0, offset - PAGE);
      show(entries, total);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (closed || number !== asked) return;
      note.hidden = false;
      note.className = "empty why";
      say(note, problem.message);
    }
    if (seen && !closed && !document.hidden) timer = setTimeout(load, seconds * 1000);
  }

  function turn(by) {
    offset = Math.max(0, offset + by);
    load();
  }

  const sight = new IntersectionObserver(([entry]) => {
    const before = seen;
    seen = entry.isIntersecting;
    if (seen && !before) load();
    else if (!seen) clearTimeout(timer);
  });
  sight.observe(element);
  const awake = () => !document.hidden && seen && load();
  document.addEventListener("visibilitychange", awake);
  return {
    element,
    again() {
      offset = 0;
      load();
    },
    close() {
      closed = true;
      clearTimeout(timer);
      sight.disconnect();
      document.removeEventListener("visibilitychange", awake);
    },
  };
}

function choice(id, label, options, changed) {
  const select = h("select", { id, onchange: changed }, ...options.map(([value, text]) => h("option", { value }, text)));
  return [h("label", { for: id, class: "hidden" }, label), select];
}

/** The flows of an access point; `filter(port)` shows those of one port. */
export function flows(page, ap, path) {
  const changed = () => table.again();
  const [activeLabel, active] = choice("flows-active", "Which flows", [["true", "Active flows"], ["", "All flows"]], changed);
  const [directionLabel, direction] = choice("flows-direction", "Direction",
    [["", "All directions"], ["uplink", "Uplink"], ["downlink", "Downlink"], ["local", "Local"]], changed);
  const [sortLabel, sort] = choice("flows-sort", "Order",
    [["-rate_bps", "Highest rate"], ["-feedback_total", "Most feedback"], ["-bytes", "Most bytes"], ["flow_index", "Index"]], changed);
  const [portLabel, port] = choice("flows-port", "Port", [["", "All ports"]], changed);
  const address = h("input", { type: "search", id: "flows-address", placeholder: "Address", "aria-label": "Source or destination address", onchange: changed });
  const table = pages({
    title: "Flows", path: `${path}/flows`, seconds: FLOWS_SECONDS,
    parameters: () => ({ active: active.value, direction: direction.value, sort: sort.value, port: port.value, address: address.value.trim() }),
    tools: [activeLabel, active, directionLabel, direction, portLabel, port, sortLabel, sort, address],
    empty: () => (address.value || port.value || direction.value ? "No flow fits this filter." : active.value ? "No flow has traffic now." : "No flow is known yet: the first packet of one makes it."),
    choose: (flow) => oneFlow(page, path, flow),
    columns: [
      ["Flow", (flow) => `${end(flow.src_addr, flow.src_port)} → ${end(flow.dst_addr, flow.dst_port)}`],
      ["Protocol", (flow) => protocol(flow.protocol)], ["Direction", (flow) => flow.direction], ["Class", (flow) => className(flow.class_id)],
      ["Rate", (flow) => rate(flow.rate_bps), "number"], ["Flow term", (flow) => percent(flow.feedback), "number"],
      ["Class term", (flow) => percent(flow.feedback_class), "number"], ["Device term", (flow) => percent(flow.feedback_device), "number"],
      ["Together", (flow) => percent(flow.feedback_total), "number"], ["Weight", (flow) => String(flow.weight), "number"],
      ["Packets", (flow) => count(flow.packets), "number"], ["Age", (flow) => ago(flow.since), "number"],
    ],
  });
  return {
    ...table,
    filter(wanted) {
      const known = new Set([...port.options].map((option) => option.value));
      for (const entry of ap.event?.ports ?? []) {
        if (!known.has(String(entry.port))) port.append(h("option", { value: entry.port }, `Port ${entry.port}, ${entry.role}`));
      }
      port.value = wanted;
      active.value = "";
      table.again();
      table.element.scrollIntoView({ block: "start" });
      port.focus({ preventScroll: true });
      announce(`flows of port ${wanted}`);
    },
  };
}

export function stations(page, ap, path, choose) {
  const changed = () => table.again();
  const [label, role] = choice("stations-role", "Role", [["station", "Stations"], ["uplink", "Behind the uplink"], ["", "All roles"], ["none", "Ports without role"]], changed);
  const [sortLabel, sort] = choice("stations-sort", "Order",
    [["-rate_down_bps", "Highest rate down"], ["-rate_up_bps", "Highest rate up"], ["-bytes_down", "Most bytes down"], ["-bytes_up", "Most bytes up"], ["address", "Address"]], changed);
  const text = h("input", { type: "search", id: "stations-text", placeholder: "Name or address", "aria-label": "Name or MAC address", onchange: changed });
  const table = pages({
    title: "Stations", path: `${path}/stations`, seconds: STATIONS_SECONDS,
    parameters: () => ({ role: role.value, sort: sort.value, name_contains: text.value.trim() }), tools: [label, role, sortLabel, sort, text],
    empty: () => (text.value ? "No station fits this filter." : "No station was heard yet."),
    choose: (station) => oneStation(page, path, station, choose, changed),
    columns: [
      ["Station", (station) => station.name ?? station.host_name ?? station.address],
      ["Down", (station) => rate(station.rate_down_bps), "number"], ["Up", (station) => rate(station.rate_up_bps), "number"],
      ["Used down", (station) => size(station.bytes_down), "number"], ["Used up", (station) => size(station.bytes_up), "number"],
      ["Weight", (station) => String(station.weight_used), "number"], ["Limits", limits], ["State", standing],
      ["MAC address", (station) => station.address], ["Port", (station) => String(station.port), "number"],
      ["Known for", (station) => ago(station.since), "number"],
    ],
  });
  return table;
}

const limits = ({ limit_down_used_bps: down, limit_up_used_bps: up }) =>
  [[down, "down"], [up, "up"]].filter(([bps]) => bps != null).map(([bps, way]) => `${rate(bps)} ${way}`).join(", ") || "–";
const standing = (station) => [station.group ? `in ${station.group}` : "", station.limit_down_missed ? "limit down missed" : "", station.limit_up_missed ? "limit up missed" : "", station.blocked ? "blocked" : "", station.locked_port == null ? "" : `locked to port ${station.locked_port}`,
  station.moves ? `moved ${count(station.moves)} times` : ""].filter(Boolean).join(", ") || "–";

/** Usage of a station today and yesterday, by this browser's clock. */
function used(path, address) {
  const element = h("p", { class: "used" }, "…");
  const midnight = new Date();
  midnight.setHours(0, 0, 0, 0);
  const before = new Date(midnight);
  before.setDate(before.getDate() - 1);
  const of = async (start, end) => {
    const { body } = await ask("GET", `${path}/stations/${address}/history?start=${start / 1000}&end=${end / 1000}`);
    return `${size(body.used.bytes_down)} down, ${size(body.used.bytes_up)} up`;
  };
  Promise.all([of(+midnight, Date.now()), of(+before, +midnight)])
    .then(([today, yesterday]) => element.replaceChildren(`Used today: ${today}; yesterday: ${yesterday}.`))
    .catch((problem) => element.replaceChildren(`What it used is not known: ${problem.message}`));
  return element;
}

/** One station: its name, weight, lock and limits, and a link to the flows of its port. */
function oneStation(page, path, seen, flowsOf, changed) {
  // A weight of its group is none of its own.
  const station = { ...seen, weight: seen.weight_used === seen.weight ? seen.weight : null };
  const allowed = page.may("operator");
  const mbit = (bps) => (bps == null ? "" : bps / 1e6);
  const number = (least, most) => ({ min: least, max: most, step: "any", disabled: !allowed, placeholder: "none" });
  const name = field("Name", "text", station.name, { maxlength: 64, disabled: !allowed, autocomplete: "off" });
  const down = field("Limit down in Mbit/s", "number", mbit(station.limit_down_bps), number(0.064, 1e6));
  const up = field("Limit up in Mbit/s", "number", mbit(station.limit_up_bps), number(0.064, 1e6));
  const weight = field("Weight against other stations", "number", station.weight, { ...number(0.001, 1000), placeholder: "1, or its group's" });
  const group = field("Group", [["", "none: default holds"], ...(station.group ? [[station.group, station.group]] : [])], station.group ?? "", { disabled: !allowed });
  ask("GET", `${path}/config`).then(({ body }) => Object.keys(body.groups).filter((each) => each !== "default" && each !== station.group)
    .forEach((each) => group.input.add(new Option(each, each)))).catch(() => {});  // those that are there serve
  const blocked = field("Blocked: nothing is sent to it", "checkbox", station.blocked, { disabled: !allowed });
  const locked = field(`Locked: it is behind port ${station.locked_port ?? station.port} and nowhere else`, "checkbox", station.locked_port != null, { disabled: !allowed });
  const bps = (of) => (of.input.value === "" ? null : Math.round(Number(of.input.value) * 1e6));
  const wanted = () => ({
    name: name.input.value.trim() || null, limit_down_bps: bps(down), limit_up_bps: bps(up), weight: weight.input.value === "" ? null : Number(weight.input.value), group: group.input.value || null,
    blocked: blocked.input.checked, locked_port: locked.input.checked ? station.locked_port ?? station.port : null,
  });
  const element = dialog(station.name ?? station.host_name ?? station.address, allowed ? "Save" : "Close", async () => {
    const patch = Object.fromEntries(Object.entries(wanted()).filter(([key, value]) => value !== station[key]));
    if (allowed && Object.keys(patch).length) await ask("PATCH", `${path}/stations/${station.address}`, patch);
    announce(`station ${station.address} is saved`);
    changed();
  }, h("p", { class: "faint" }, `${station.address}, ${station.role} behind port ${station.port}, known for ${ago(station.since)}; `
    + `${count(station.packets_down)} packets down, ${count(station.packets_up)} up`), used(path, station.address),
  station.randomised ? h("p", { class: "faint small" }, "Its address was made up, as phones do for each network: with another one it has no name, limit or weight from here.") : null,
  name.element, h("div", { class: "two" }, down.element, up.element), weight.element, group.element, blocked.element, locked.element,
  h("button", { type: "button", onclick: () => {
    element.close();
    flowsOf(station.port);
  } }, `Flows of port ${station.port}`));
}

/** One flow, once a second, until the dialog is closed. */
function oneFlow(page, path, flow) {
  const where = `${path}/flows/${flow.flow_index}`;
  const samples = [];
  const charts = new Charts();
  let timer = 0;
  let allowed = page.may("operator");
  const note = h("p", { class: "note", role: "status" }, allowed ? "" : "Your role, viewer, may look but not change weights.");
  const facts = h("p", { class: "faint" });
  const handle = slider("this flow", async (weight) => {
    try {
      await ask("PATCH", where, { weight });
      say(note, `Weight is ${weight} now, as long as the flow lives.`);
      charts.markers.push({ time: Date.now() / 1000, text: `weight ${weight}` });
    } catch (problem) {
      say(note, `Not changed: ${problem.message}`);
    }
  });
  const dialog = h("dialog", { "aria-labelledby": "flow-title" },
    h("form", { method: "dialog", class: "tools" }, h("h2", { id: "flow-title" }, `${end(flow.src_addr, flow.src_port)} → ${end(flow.dst_addr, flow.dst_port)}`),
      h("span", { class: "grow" }), h("button", {}, "Close")),
    facts,
    charts.add("Rate", rate, 1e4, [{ name: "rate", colour: flow.class_id === 2 ? "--up" : "--down", value: (sample) => sample.flow.rate_bps }]),
    charts.add("Feedback terms", percent, 0.01, [
      { name: "flow", colour: "--flow", value: (sample) => sample.flow.feedback },
      { name: "class", colour: flow.class_id === 2 ? "--up" : "--down", value: (sample) => sample.flow.feedback_class },
      { name: "device", colour: "--device", value: (sample) => sample.flow.feedback_device },
      { name: "limit of its station", colour: "--drops", value: (sample) => sample.flow.feedback_limit },
    ]),
    h("p", {}, h("span", { class: "faint" }, "Weight "), handle.element), note);

  async function load() {
    try {
      const { body } = await ask("GET", where);
      if (body.generation !== flow.generation) throw new Problem(404, "the flow has ended; its index belongs to another one");
      samples.push({ time: Date.now() / 1000, flow: body });
      say(facts, `${protocol(body.protocol)}, ${body.direction}, port ${body.ingress_port} to ${body.egress_port}, class ${className(body.class_id)}, `
        + `${count(body.packets)} packets, for ${ago(body.since)}, ${body.active ? "active" : "quiet"}`);
      handle.set(body.weight, allowed);
      charts.show(samples, 120, 1);
    } catch (problem) {
      if (problem.status === 404) {
        allowed = false;
        handle.set(1, false);
        say(note, "The flow has ended.");
        return;
      }
      say(note, problem.message);
    }
    if (dialog.open) timer = setTimeout(load, 1000);
  }

  dialog.addEventListener("close", () => {
    clearTimeout(timer);
    charts.close();
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  load();
}
