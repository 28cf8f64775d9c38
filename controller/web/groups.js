// SPDX-License-Identifier: Apache-2.0
// Groups of stations: the weight and limits that all stations of one have.

import { ask } from "./api.js";
import { confirmed, dialog, field, listing, numberIn } from "./forms.js";
import { count, rate } from "./ui.js";

const limit = (bps) => (bps == null ? "–" : rate(bps));

/** The groups of an access point; `tell` says what was done, `read` reads its settings again. */
export function groupsOf(page, path, tell, read) {
  const table = listing("Groups of stations", ["Group", "Weight", "Limit down", "Limit up", "Stations"],
    "No groups. The one called default holds for all stations that name none.",
    page.may("admin") ? { word: "Add a group", act: () => edit() } : null);

  const change = async (name, group, text) => {
    await ask("PATCH", `${path}/config`, { groups: { [name]: group } });
    tell(text);
    read();
  };

  function edit(known = "", group = {}) {
    const mbit = (bps) => (bps == null ? "" : bps / 1e6);
    const of = { min: 0.064, max: 1e6, step: "any", placeholder: "none" };
    const name = field("Name: default is for stations that name none", "text", known, { required: true, maxlength: 64, pattern: "[A-Za-z0-9._\\-]+", readOnly: Boolean(known) });
    const weight = field("Weight of each station", "number", group.weight ?? 1, { min: 0.001, max: 1000, step: "any", required: true });
    const down = field("Limit down in Mbit/s, of each station", "number", mbit(group.limit_down_bps), of);
    const up = field("Limit up in Mbit/s, of each station", "number", mbit(group.limit_up_bps), of);
    const bps = (one) => (numberIn(one) === null ? null : Math.round(numberIn(one) * 1e6));
    dialog(known ? `Group ${known}` : "Add a group", known ? "Save" : "Add", () => {
      const called = name.input.value.trim();
      return change(called, { weight: numberIn(weight), limit_down_bps: bps(down), limit_up_bps: bps(up) }, `Group ${called} is in place.`);
    }, ...[name, weight, down, up].map((each) => each.element));
  }

  const remove = (name) => confirmed(`Remove group ${name}`, "Only a group that no station is in can be removed.", "Remove",
    () => change(name, null, `Group ${name} is removed.`));

  return {
    element: table.element,
    show({ groups, stations }) {
      const members = (name) => Object.values(stations).filter((station) => (station.group ?? "default") === name).length;
      table.show(Object.entries(groups).map(([name, group]) => ({
        name,
        cells: [String(group.weight ?? 1), limit(group.limit_down_bps), limit(group.limit_up_bps), name === "default" ? "all others" : count(members(name))],
        buttons: { "Edit group": () => edit(name, group), "Remove group": () => remove(name) },
      })));
    },
  };
}
