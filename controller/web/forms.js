// SPDX-License-Identifier: Apache-2.0
// Forms in dialogs: fields with labels, one button, and the reason when its action fails.

import { Problem } from "./api.js";
import { announce, h } from "./ui.js";

let made = 0;

/** A field with its label: `kind` is an input's type, or the [value, text] of a choice; `value` is its content. */
export function field(label, kind, value = "", more = {}) {
  const id = `field-${++made}`;
  let input;
  if (Array.isArray(kind)) {
    input = h("select", { id, ...more }, ...kind.map(([each, text]) => h("option", { value: each }, text)));
    input.value = value;
  } else {
    input = h("input", { id, type: kind, ...more });
    if (kind === "checkbox") input.checked = Boolean(value);
    else input.value = value ?? "";
  }
  const words = h("label", { for: id }, label);
  return { input, element: h("div", { class: kind === "checkbox" ? "field check" : "field" }, ...(kind === "checkbox" ? [input, words] : [words, input])) };
}

/** Return the number in a field; null for none. */
export const numberIn = (one) => (one.input.value.trim() === "" ? null : Number(one.input.value));

/** A dialog until it is closed; `act()` is its button's action, and an error of it is shown in the dialog. What `act` returns
 * takes the place of the form, as a secret that is told once. */
export function dialog(title, word, act, ...children) {
  const why = h("p", { class: "why", role: "alert" });
  const button = h("button", { class: `primary ${word.startsWith("Remove") || word === "Revoke" ? "danger" : ""}` }, word);
  const close = h("button", { type: "button", onclick: () => element.close() }, "Cancel");
  const form = h("form", { class: "fields", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    why.textContent = "";
    try {
      const rest = await act();
      if (rest) {
        close.textContent = "Close";
        form.replaceChildren(rest, h("div", { class: "tools" }, h("span", { class: "grow" }), close));
      } else element.close();
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      why.textContent = problem.status === 412 ? "Somebody else changed it meanwhile, and nothing was done: close this and look." : problem.message;
    }
    button.disabled = false;
  } }, ...children, why, h("div", { class: "tools" }, h("span", { class: "grow" }), close, button));
  const element = h("dialog", { class: "narrow", "aria-label": title }, h("h2", {}, title), form);
  element.addEventListener("close", () => element.remove());
  document.body.append(element);
  element.showModal();
  return element;
}

/** A table of what an operator adds and removes. `show(rows)` takes { name, cells, buttons } of each row, the buttons by their words, and
 * keeps rows that stay: a button must not disappear while it is pressed. */
export function listing(title, columns, none, add) {
  const body = h("tbody", { role: "rowgroup" });
  const table = h("table", { class: "grid", role: "table", "aria-label": title, hidden: true }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
    ...[...columns, ""].map((column) => h("th", { scope: "col", role: "columnheader" }, column || h("span", { class: "hidden" }, "Change"))))), body);
  const empty = h("p", { class: "faint" }, none);
  const element = h("div", { class: "listing" }, h("div", { class: "tools" }, h("h3", {}, title), h("span", { class: "grow" }),
    add ? h("button", { type: "button", onclick: add.act }, add.word) : null),
  h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table of ${title.toLowerCase()}` }, table), empty);
  let shown = "[]";
  function show(rows) {
    const text = JSON.stringify(rows.map(({ name, cells }) => [name, ...cells]));
    if (text === shown) return;
    shown = text;
    empty.hidden = rows.length > 0;
    table.hidden = !rows.length;
    body.replaceChildren(...rows.map(({ name, cells, buttons }) => h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, name),
      ...cells.map((cell) => h("td", { role: "cell" }, cell)),
      h("td", { role: "cell" }, h("div", { class: "actions" }, ...(add ? Object.entries(buttons) : []).map(([word, act]) =>
        h("button", { type: "button", "aria-label": `${word} ${name}`, onclick: act }, word.split(" ", 1)[0])))))));
  }
  return { element, show };
}

/** Ask before an action that cannot be undone. */
export function confirmed(title, text, word, act) {
  return dialog(title, word, async () => {
    await act();
    announce(`${title}: done`);
  }, h("p", {}, text));
}
