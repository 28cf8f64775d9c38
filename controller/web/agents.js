// SPDX-License-Identifier: Apache-2.0
// For admins: agents that announce themselves and wait to be adopted. Without any, nothing is shown.

import { Problem, ask } from "./api.js";
import { dialog, field } from "./forms.js";
import { h } from "./ui.js";

const EVERY_MS = 5000;

/** A list that refreshes itself; `adopted` is called with the name of an access point. */
export function waiting(adopted) {
  const list = h("ul", {});
  const element = h("section", { "aria-label": "Agents that wait to be adopted", hidden: true },
    h("h2", {}, "Agents that wait to be adopted"), list);
  let timer = null;
  let shown = "";

  async function read() {
    try {
      const { body } = await ask("GET", "/agents?limit=500");
      const found = body.filter((agent) => agent.access_point === null);
      // A button that is about to be pressed must not move.
      const now = found.map((agent) => agent.id).join();
      if (now !== shown) {
        list.replaceChildren(...found.map((agent) => h("li", {}, `${agent.name} on ${agent.host} `,
          h("button", { type: "button", "aria-label": `Adopt ${agent.name}`, onclick: () => adopt(agent) }, "Adopt"))));
        element.hidden = !found.length;
        shown = now;
      }
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
    }
    timer = setTimeout(read, EVERY_MS);
  }

  function adopt(agent) {
    const name = field("For the access point", "text", agent.name, { required: true, maxlength: 64, pattern: "[A-Za-z0-9._\\-]+", autocomplete: "off" });
    dialog(`Adopt ${agent.name}`, "Adopt it", async () => {
      await ask("PUT", `/agents/${encodeURIComponent(agent.id)}`, { access_point: name.input.value.trim() });
      adopted(name.input.value.trim());
    }, h("p", {}, "This is its key. It says so in its log: compare the two."), h("code", { class: "secret" }, agent.id), name.element);
  }

  read();
  return { element, close: () => clearTimeout(timer) };
}
