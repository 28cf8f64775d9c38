// SPDX-License-Identifier: Apache-2.0
// Settings of an access point: features, law, rates of ports, rules; and for admins, its connection and removal.

import { Problem, ask } from "./api.js";
import { confirmed, dialog, field, listing, numberIn } from "./forms.js";
import { groupsOf } from "./groups.js";
import { scheduleOf } from "./schedule.js";
import { announce, className, h, say } from "./ui.js";

const FEATURES = [
  ["ncr", "Feedback", "Marks or drops what takes more than its share, by its law."],
  ["ack_priority", "ACKs first", "ACKs do not wait behind data."],
  ["ack_filter", "ACK filter", "An ACK that a newer one says as well is not sent."],
  ["sparse", "Sparse flows first", "Flows that send little do not wait behind those that send much."],
];
const LAWS = [["pi2", "pi2: the project's own"], ["paper", "paper: as published"]];
const DIRECTIONS = [["", "any"], ["uplink", "uplink"], ["downlink", "downlink"], ["local", "local"]];
const PROTOCOLS = [["", "any"], ["6", "TCP"], ["17", "UDP"], ["1", "ICMP"], ["58", "ICMPv6"]];
const MATCHES = ["direction", "flow_class", "dscp", "protocol", "src_port", "dst_port", "pure_ack", "sparse", "known_flow"];
const WORDS = { 1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6" };
const REFRESH_SECONDS = 15;

export function settings(page, ap, path) {
  const operator = page.may("operator");
  const note = h("p", { class: "note", role: "status" }, operator ? "" : "Your role, viewer, may look but not change these.");
  const tags = {};
  let timer = 0;
  let open = true;
  let busy = false;

  const switches = FEATURES.map(([name, title, text]) => {
    const box = h("input", { type: "checkbox", role: "switch", id: `feature-${name}`, disabled: true,
      onchange: () => change("features", { [name]: box.checked }, `${title} is ${box.checked ? "on" : "off"}`) });
    return { name, box, element: h("div", { class: "switch" }, box, h("label", { for: box.id }, h("b", {}, title), h("span", { class: "faint small" }, text))) };
  });
  const law = field("Law of feedback", LAWS, "pi2", { disabled: true, onchange: () => change("ncr", { law: law.input.value, own: null }, `The law is ${law.input.value}`) });
  const target = field("Queue target in ms", "number", "", { min: 0.1, max: 10000, step: "any", disabled: true,
    onchange: () => target.input.reportValidity() && change("ncr", { queue_target_ms: numberIn(target) }, `The queue target is ${target.input.value || "the default"}${target.input.value ? " ms" : ""}`) });

  const rates = h("div", {});
  const rateOf = new Map();

  const rules = listing("Rules", ["Rule", "Matches", "Class", "Queue", "Regulated", "Priority"], "No rules: packets belong to the class of their direction.",
    operator ? { word: "Add a rule", act: addRule } : null);
  const groups = groupsOf(page, path, tell, read);
  const schedule = scheduleOf(page, path, tell, read);
  const connected = h("button", { type: "button", onclick: connect }, "Disconnect");
  let enabled = true;

  const element = h("section", { "aria-label": "Settings" }, h("h2", {}, "Settings"),
    h("div", { class: "settings" },
      h("div", {}, h("h3", {}, "Features"), ...switches.map((each) => each.element)),
      h("div", {}, h("h3", {}, "Law"), law.element, target.element),
      h("div", {}, h("h3", {}, "Rates of ports"), rates)),
    note,
    rules.element, groups.element, schedule.element,
    page.may("admin") ? h("div", { class: "tools danger-zone" }, connected,
      h("button", { type: "button", onclick: () => remove() }, "Remove this access point")) : null);

  /** Show the current settings, except fields that the user is editing. */
  async function read() {
    clearTimeout(timer);
    try {
      for (const part of ["features", "ncr", "rules", "config"]) {
        const { body, etag } = await ask("GET", `${path}/${part}`);
        if (!open || busy) break;
        tags[part] = etag;
        show(part, body);
      }
      for (const number of rateOf.keys()) {
        const { etag } = await ask("GET", `${path}/ports/${number}`);
        if (!open || busy) break;
        tags[`ports/${number}`] = etag;
      }
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      tell(problem.message, true);
    }
    if (open) timer = setTimeout(read, REFRESH_SECONDS * 1000);
  }

  function show(part, body) {
    if (part === "features") {
      for (const { name, box } of switches) [box.checked, box.disabled] = [body[name], !operator];
    } else if (part === "ncr") {
      law.input.disabled = target.input.disabled = !operator;
      if (![...law.input.options].some((option) => option.value === body.law)) law.input.add(new Option(body.law, body.law));  // the user's own
      law.input.value = body.law;
      if (document.activeElement !== target.input) target.input.value = body.queue_target_ms;
    } else if (part === "rules") showRules(body);
    else if (part.startsWith("ports/")) showRate(body);
    else {
      showRates(body.ports);
      groups.show(body);
      schedule.show(body);
      enabled = body.enabled;
      say(connected, enabled ? "Disconnect" : "Connect");
    }
  }

  function showRates(ports) {
    for (const [number, one] of rateOf) {
      if (ports.some((port) => port.port === number)) continue;
      one.element.remove();
      rateOf.delete(number);
    }
    for (const port of ports) {
      if (!rateOf.has(port.port)) {
        const one = field(`Port ${port.port}, ${port.role}: Mbit/s (empty: learned)`, "number", "", { min: 0.001, max: 1000000, step: "any", disabled: !operator,
          onchange: () => one.input.reportValidity() && change(`ports/${port.port}`, { capacity_bps: numberIn(one) === null ? "auto" : Math.round(numberIn(one) * 1e6) },
            `The rate of port ${port.port} is ${one.input.value ? `${one.input.value} Mbit/s` : "learned"}`) });
        rateOf.set(port.port, one);
        rates.append(one.element);
      }
      showRate(port);
    }
  }

  function showRate(port) {
    const { input } = rateOf.get(port.port);
    if (document.activeElement !== input) input.value = port.capacity_bps === "auto" ? "" : port.capacity_bps / 1e6;
  }

  function showRules(found) {
    rules.show(found.map((rule) => ({
      name: rule.name,
      cells: [
        MATCHES.filter((name) => rule[name] != null).map((name) => `${name} ${name === "protocol" ? (WORDS[rule[name]] ?? rule[name]) : Array.isArray(rule[name]) ? rule[name].join("–") : rule[name]}`).join(", ") || "everything",
        className(rule.class_id), rule.queue ? `priority ${rule.queue}` : "bulk", rule.regulated ? "yes" : "no", String(rule.priority)],
      buttons: { "Remove rule": () => removeRule(rule.name) },
    })));
  }

  function tell(text, bad = false) {
    note.className = bad ? "note why" : "note";
    say(note, text);
    announce(text);
  }

  async function change(part, patch, text) {
    busy = true;
    try {
      const { body, etag } = await ask("PATCH", `${path}/${part}`, patch, tags[part]);
      tags[part] = etag;
      show(part, body);
      tell(`${text}${ap.event?.state === "ready" ? " now." : ", for when the switch is back."}`);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      tell(problem.status === 412 ? "Somebody else changed these meanwhile, and nothing was done: set it again if you still want to." : `Not changed: ${problem.message}`, true);
    }
    busy = false;
    read();
  }

  function addRule() {
    const name = field("Name", "text", "", { required: true, maxlength: 64, pattern: "[A-Za-z0-9._\\-]+" });
    const direction = field("Direction", DIRECTIONS);
    const protocol = field("Protocol", PROTOCOLS);
    const dscp = field("DSCP", "number", "", { min: 0, max: 63, placeholder: "any" });
    const port = field("Destination port", "number", "", { min: 0, max: 65535, placeholder: "any" });
    const into = field("Class, 0 to 7", "number", "3", { min: 0, max: 7, required: true });
    const queue = field("Priority queue, 0 is bulk", "number", "0", { min: 0, max: 7, required: true });
    const priority = field("Priority of the rule: of two that match the higher decides", "number", "1000", { min: 1000, max: 100000, required: true });
    const regulated = field("Feedback applies to it", "checkbox", true);
    dialog("Add a rule", "Add", async () => {
      const rule = { name: name.input.value.trim(), class_id: numberIn(into), queue: numberIn(queue), priority: numberIn(priority), regulated: regulated.input.checked };
      if (direction.input.value) rule.direction = direction.input.value;
      if (protocol.input.value) rule.protocol = Number(protocol.input.value);
      if (numberIn(dscp) !== null) rule.dscp = numberIn(dscp);
      if (numberIn(port) !== null) rule.dst_port = [numberIn(port), numberIn(port)];
      await ask("PUT", `${path}/rules/${encodeURIComponent(rule.name)}`, rule);
      tell(`Rule ${rule.name} is in place.`);
      read();
    }, ...[name, direction, protocol, dscp, port, into, queue, priority, regulated].map((each) => each.element));
  }

  function removeRule(name) {
    confirmed(`Remove rule ${name}`, "Packets that it matched belong to the class of their direction again.", "Remove", async () => {
      await ask("DELETE", `${path}/rules/${encodeURIComponent(name)}`);
      tell(`Rule ${name} is removed.`);
      read();
    });
  }

  function connect() {
    const act = async () => {
      await ask("PATCH", `${path}/config`, { enabled: !enabled });
      tell(enabled ? "Disconnected." : "Connecting.");
      read();
    };
    if (enabled) confirmed(`Disconnect ${ap.name}`, "Its switch goes on forwarding, without feedback.", "Disconnect", act);
    else act().catch((problem) => tell(problem.message, true));
  }

  function remove() {
    const again = field(`Its name, ${ap.name}, to be sure`, "text", "", { required: true, autocomplete: "off" });
    dialog(`Remove ${ap.name}`, "Remove it and its history", async () => {
      if (again.input.value.trim() !== ap.name) throw new Problem(0, `That is not ${ap.name}: nothing was done.`);
      await ask("DELETE", path);
    }, h("p", {}, "Its switch goes on forwarding, without feedback. Its history is gone."), again.element);
  }

  read();
  return {
    element,
    close() {
      open = false;
      clearTimeout(timer);
    },
  };
}
