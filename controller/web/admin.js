// SPDX-License-Identifier: Apache-2.0
// For admins: adding an access point, the list of tokens, and the audit log.

import { Problem, ask } from "./api.js";
import { confirmed, dialog, field, numberIn } from "./forms.js";
import { ago, h, say } from "./ui.js";

const DAYS = [["1", "a day"], ["30", "30 days"], ["90", "90 days"], ["365", "a year"], ["", "for ever"]];
const ROLES = [["viewer", "viewer: reads"], ["operator", "operator: also changes weights, features, law, rules"], ["admin", "admin: everything"]];

/** Add an access point; it is checked first, and connected at once. */
export function addAccessPoint(added) {
  const name = field("Name", "text", "", { required: true, maxlength: 64, pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off" });
  const address = field("Address of its switch (P4Runtime)", "text", "127.0.0.1:9559", { required: true });
  const device = field("Device id", "number", "1", { min: 0, required: true });
  const rows = h("div", { class: "ports" });
  const ports = [];

  function addPort(role) {
    const number = field("Port", "number", String(ports.length + 1), { min: 0, max: 509, required: true });
    const kind = field("Leads to", [["station", "stations"], ["uplink", "the uplink"]], role);
    const capacity = field("Mbit/s (empty: learned)", "number", "", { min: 0.001, max: 1000000, step: "any" });
    const one = { number, kind, capacity };
    one.element = h("div", { class: "port" }, number.element, kind.element, capacity.element,
      h("button", { type: "button", "aria-label": "Remove this port", onclick: () => {
        ports.splice(ports.indexOf(one), 1);
        one.element.remove();
      } }, "×"));
    ports.push(one);
    rows.append(one.element);
  }

  addPort("station");
  addPort("uplink");
  dialog("Add an access point", "Check and add", async () => {
    const body = {
      name: name.input.value.trim(), address: address.input.value.trim(), device_id: numberIn(device),
      ports: ports.map((one) => ({ port: numberIn(one.number), role: one.kind.input.value,
        capacity_bps: numberIn(one.capacity) === null ? "auto" : Math.round(numberIn(one.capacity) * 1e6) })),
    };
    await ask("POST", "/access-points?validate=true", body);
    await ask("POST", "/access-points", body);
    added(body.name);
  }, name.element, address.element, device.element, h("h3", {}, "Ports"), rows,
  h("button", { type: "button", onclick: () => addPort("station") }, "One more port"));
}

/** The view of tokens. */
export function tokens(page) {
  const body = h("tbody", { role: "rowgroup" });
  const note = h("p", { class: "note", role: "status" });
  const COLUMNS = ["Name", "Role", "Made", "Expires", ""];
  const AUDIT_COLUMNS = ["When", "By", "From", "Request", "Answer", "Change"];
  const lines = h("tbody", { role: "rowgroup" });
  const audit = h("div", { hidden: true }, h("h2", {}, "Audit log"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of the audit log" },
      h("table", { class: "grid", role: "table", "aria-label": "Audit log" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
        ...AUDIT_COLUMNS.map((title) => h("th", { scope: "col", role: "columnheader" }, title)))), lines)));
  const element = h("section", { "aria-label": "Tokens" },
    h("nav", { class: "crumbs", "aria-label": "Where" }, h("a", { href: "#/" }, "Access points"), " / ", h("h1", {}, "Tokens")),
    h("div", { class: "tools" }, h("p", { class: "faint small" }, "Whoever has a token's secret has its role. A secret is told once; only a hash is kept."),
      h("span", { class: "grow" }), h("button", { type: "button", class: "primary", onclick: create }, "New token")),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of tokens" },
      h("table", { class: "grid", role: "table", "aria-label": "Tokens" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
        ...COLUMNS.map((title) => h("th", { scope: "col", role: "columnheader" }, title || h("span", { class: "hidden" }, "Revoke"))))), body)), note, audit);

  function expiry(token) {
    if (token.revoked) return "revoked";
    if (token.expires === null) return "never";
    return token.expires * 1000 < Date.now() ? "expired" : new Date(token.expires * 1000).toLocaleDateString("en-CA");
  }

  async function read() {
    try {
      const { body: found } = await ask("GET", "/tokens?limit=500");
      body.replaceChildren(...found.map((token) => h("tr", { role: "row", class: token.revoked ? "faint" : "" },
        h("th", { scope: "row", role: "rowheader" }, token.name), h("td", { role: "cell" }, token.role),
        h("td", { role: "cell" }, `${ago(token.created)} ago`), h("td", { role: "cell" }, expiry(token)),
        h("td", { role: "cell" }, token.revoked ? null : h("button", { type: "button", "aria-label": `Revoke ${token.name}`, onclick: () => revoke(token) }, "Revoke")))));
      const { body: logged } = await ask("GET", "/audit?limit=50");
      audit.hidden = !logged.length;
      lines.replaceChildren(...logged.map((line) => h("tr", { role: "row" },
        h("th", { scope: "row", role: "rowheader" }, `${ago(line.time)} ago`), ...[line.actor, line.client, `${line.action} ${line.path}`,
          String(line.status), line.change === null ? "" : JSON.stringify(line.change)].map((text) => h("td", { role: "cell" }, text)))));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      note.className = "note why";
      say(note, problem.message);
    }
  }

  function create() {
    const name = field("Whose it is", "text", "", { required: true, maxlength: 64, pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off" });
    const role = field("Role", ROLES, "viewer");
    const days = field("Valid for", DAYS, "90");
    dialog("New token", "Make it", async () => {
      const expires_in = days.input.value ? Number(days.input.value) * 86400 : null;
      const { body: made } = await ask("POST", "/tokens", { name: name.input.value.trim(), role: role.input.value, expires_in });
      read();
      return h("div", {}, h("p", {}, "This is the only time that it is told:"), h("code", { class: "secret", tabindex: "0" }, made.token));
    }, name.element, role.element, days.element);
  }

  function revoke(token) {
    confirmed(`Revoke ${token.name}`, "It, and the sessions opened with it, open nothing any more.", "Revoke", async () => {
      await ask("DELETE", `/tokens/${encodeURIComponent(token.id)}`);
      read();
    });
  }

  if (page.may("admin")) read();
  else say(note, "Tokens are for admins.");
  return { element, title: "Tokens", path: "/events" };
}
