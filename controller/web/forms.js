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

/** Ask before an action that cannot be undone. */
export function confirmed(title, text, word, act) {
  return dialog(title, word, async () => {
    await act();
    announce(`${title}: done`);
  }, h("p", {}, text));
}
