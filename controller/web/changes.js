// SPDX-License-Identifier: Apache-2.0
// Changes of an access point: its revisions with authors and differences, and the way back for admins.

import { Problem, ask } from "./api.js";
import { confirmed } from "./forms.js";
import { ago, announce, h, say } from "./ui.js";

const SHOWN = 10;
const MAX_DIFFERENCES = 6;

/** The values of a configuration by their places, as `ncr.queue_target_ms`; ports, rules and the like by what names them. */
function flat(value, place = "", found = new Map()) {
  if (value === null || typeof value !== "object") return found.set(place, JSON.stringify(value));
  if (Array.isArray(value) && value.some((each) => each === null || typeof each !== "object")) return found.set(place, JSON.stringify(value));
  for (const [key, each] of Object.entries(value)) {
    const name = Array.isArray(value) ? (each.name ?? each.port ?? key) : key;
    flat(each, place ? `${place}.${name}` : String(name), found);
  }
  return found;
}

/** What differs between two configurations, in words; fields that are left out have their defaults. */
export function differences(before, after) {
  const [old, now] = [flat(before), flat(after)];
  return [...new Set([...old.keys(), ...now.keys()])].filter((place) => old.get(place) !== now.get(place))
    .map((place) => `${place} ${old.get(place) ?? "default"} → ${now.get(place) ?? "default"}`);
}

export function changes(page, ap, path) {
  const admin = page.may("admin");
  const COLUMNS = ["Revision", "When", "By", "Change", ...(admin ? [""] : [])];
  const body = h("tbody", { role: "rowgroup" });
  const note = h("p", { class: "note", role: "status" });
  const element = h("section", { "aria-label": "Changes" }, h("h2", {}, "Changes"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of changes" },
      h("table", { class: "grid", role: "table", "aria-label": "Changes" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
        ...COLUMNS.map((title) => h("th", { scope: "col", role: "columnheader" }, title || h("span", { class: "hidden" }, "Restore"))))), body)), note);
  let known = null;
  let open = true;

  /** Read the revisions, when there is one that is not shown yet. */
  async function update() {
    const wanted = ap.event?.revision;
    if (wanted == null || wanted === known) return;
    known = wanted;
    try {
      const { body: found } = await ask("GET", `${path}/revisions?limit=${SHOWN + 1}`);
      if (open) body.replaceChildren(...found.slice(0, SHOWN).map((one, index) => row(one, found[index + 1], index)));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      known = null;
      say(note, problem.message);
    }
  }

  function row(one, before, index) {
    const found = before ? differences(before.config, one.config) : ["the first that is kept"];
    const more = found.length > MAX_DIFFERENCES ? `, and ${found.length - MAX_DIFFERENCES} more` : "";
    const text = (found.slice(0, MAX_DIFFERENCES).join(", ") || "nothing") + more;
    const cells = [`${ago(one.time)} ago`, one.actor, text].map((each) => h("td", { role: "cell" }, each));
    if (admin) cells.push(h("td", { role: "cell" }, index ? h("button", { type: "button", "aria-label": `Restore revision ${one.revision}`, onclick: () => restore(one.revision) }, "Restore") : null));
    return h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, String(one.revision)), ...cells);
  }

  function restore(number) {
    confirmed(`Restore revision ${number}`, "Its configuration takes the place of the present one, as a new revision.", "Restore", async () => {
      await ask("POST", `${path}/revisions/${number}/restore`);
      say(note, `The configuration is that of revision ${number}.`);
      announce(note.textContent);
    });
  }

  return {
    element,
    update,
    close() {
      open = false;
    },
  };
}
