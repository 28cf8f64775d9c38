// SPDX-License-Identifier: Apache-2.0
// Classes: what each is worth, what it gets against that, and sliders that change the weights of an access point.

import { Problem, ask } from "./api.js";
import { announce, classColour, className, h, number, percent, perSecond, rate, say, weightName } from "./ui.js";

const STEPS = [0.1, 0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 50, 64, 100];
const RECENT_SECONDS = 5;

const nearest = (weight) =>
  STEPS.reduce((best, step, index) => (Math.abs(Math.log(step / weight)) < Math.abs(Math.log(STEPS[best] / weight)) ? index : best), 0);

/** A slider with a number beside it; `change(weight)` when it is let go. */
export function slider(label, change) {
  const range = h("input", { type: "range", min: 0, max: STEPS.length - 1, step: 1, "aria-label": `Weight of ${label}` });
  const exact = h("input", { type: "number", min: 0.001, max: 1000, step: "any", "aria-label": `Weight of ${label}, exact` });
  let busy = false;
  range.addEventListener("input", () => {
    busy = true;
    exact.value = STEPS[range.value];
    range.setAttribute("aria-valuetext", exact.value);
  });
  range.addEventListener("change", () => done(STEPS[range.value]));
  exact.addEventListener("focus", () => (busy = true));
  exact.addEventListener("change", () => exact.reportValidity() && done(Number(exact.value)));
  exact.addEventListener("blur", () => (busy = false));
  async function done(weight) {
    busy = true;
    try {
      await change(weight);
    } finally {
      busy = false;
    }
  }
  return {
    element: h("span", { class: "slider" }, range, exact),
    /** What it is worth now, unless somebody is moving it. */
    set(weight, allowed) {
      range.disabled = exact.disabled = !allowed;
      if (busy) return;
      range.value = nearest(weight);
      exact.value = weight;
      range.setAttribute("aria-valuetext", String(weight));
    },
  };
}

export function weights(page, ap, path, wanted, marked) {
  const rows = new Map();
  let tag = null;
  let current = null;
  let closed = false;
  const note = h("p", { class: "note", role: "status" });
  const body = h("tbody", { role: "rowgroup" });
  const TITLES = ["Class", "Weight", "Share of what was sent", "Sent", "Allowed", "Class term", "Marks", "Drops", "ACKs filtered"];
  const table = h("table", { class: "grid classes", role: "table", "aria-label": "Classes and weights" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...TITLES.map((title, index) =>
      h("th", { scope: "col", role: "columnheader", class: index > 2 ? "number" : "" }, title)))), body);
  const element = h("section", { "aria-label": "Classes" }, h("h2", {}, "Classes"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of classes" }, table),
    h("p", { class: "faint small" }, `Bar: share of the last ${RECENT_SECONDS} s; line: share by weight among the classes with traffic. `
      + "A class that asks for less than its share leaves the rest to the others."), note);

  async function read() {
    const { body: weights, etag } = await ask("GET", `${path}/class-weights`);
    if (!closed) [current, tag] = [weights, etag];
  }

  async function change(name, weight) {
    const before = current?.[name];
    if (before === weight) return;
    say(note, "Applying…");
    note.className = "note";
    try {
      const answer = await ask("PATCH", `${path}/class-weights`, { [name]: weight }, tag);
      [current, tag] = [answer.body, answer.etag];
      say(note, `Weight of ${name} is ${number(weight)} now; the next tick uses it.`);
      marked(`${name} ${before} → ${weight}`);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      note.className = "note why";
      await read().catch(() => {});
      say(note, problem.status === 412
        ? `Somebody else changed the weights meanwhile: ${name} is ${current?.[name]}. Nothing was done; set it again if you still want to.`
        : `Not changed: ${problem.message}`);
    }
    announce(note.textContent);
    update();
  }

  function row(id) {
    const name = weightName(id);
    const swatch = h("i", { class: "swatch", "aria-hidden": "true" });
    swatch.style.color = `var(${classColour(id)})`;
    const fill = h("i", { class: "fill" });
    fill.style.background = `var(${classColour(id)})`;
    const due = h("i", { class: "due" });
    const share = h("span", { class: "share-text" });
    const handle = slider(name, (weight) => change(name, weight));
    const cells = TITLES.slice(3).map(() => h("td", { class: "number", role: "cell" }));
    const made = { fill, due, share, handle, cells };
    made.element = h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, swatch, className(id)), h("td", { role: "cell" }, handle.element),
      h("td", { role: "cell", class: "share" }, h("span", { class: "bar-share", "aria-hidden": "true" }, fill, due), share), ...cells);
    rows.set(id, made);
    for (const [, each] of [...rows].sort(([a], [b]) => a - b)) body.append(each.element);
    return made;
  }

  function update() {
    const { event, last } = ap;
    if (!event) return;
    const recent = ap.samples.filter((sample) => sample.time > (last?.time ?? 0) - RECENT_SECONDS);
    const classes = event.classes.map((entry) => {
      const mine = (sample) => [...(sample?.ports ?? [])].filter(([port]) => wanted(port)).map(([, record]) => record.classes?.get(entry.class_id)).filter(Boolean);
      const sum = (found, name) => found.reduce((result, each) => result + each[name], 0);
      const now = mine(last);
      const sent = recent.reduce((result, sample) => result + sum(mine(sample), "sent"), 0) / (recent.length || 1);
      return { entry, sent, desired: sum(now, "desired"), feedback: Math.max(0, ...now.map((each) => each.feedback)),
        marked: sum(now, "marked"), dropped: sum(now, "dropped"), filtered: sum(now, "filtered") };
    });
    const all = classes.reduce((result, each) => result + each.sent, 0);
    const worth = classes.reduce((result, each) => result + (each.sent > 0 ? each.entry.weight : 0), 0);
    const allowed = page.may("operator") && tag != null;
    for (const { entry, sent, ...now } of classes) {
      const made = rows.get(entry.class_id) ?? row(entry.class_id);
      const share = all ? sent / all : 0;
      const due = sent > 0 ? entry.weight / worth : null;
      made.handle.set(current?.[weightName(entry.class_id)] ?? entry.weight, allowed);
      made.fill.style.width = `${100 * share}%`;
      made.due.hidden = due == null;
      made.due.style.left = `${100 * (due ?? 0)}%`;
      say(made.share, all ? `${percent(share)}${due == null ? "" : `, by weight ${percent(due)}`}` : "no traffic");
      [rate(sent), now.desired > 0 ? rate(now.desired) : "–", percent(now.feedback), perSecond(now.marked), perSecond(now.dropped), perSecond(now.filtered)]
        .forEach((text, index) => say(made.cells[index], text));
    }
    if (!page.may("operator") && !note.textContent) say(note, "Your role, viewer, may look but not change weights.");
  }

  read().then(update, (problem) => {
    note.className = "note why";
    say(note, `Weights cannot be changed now: ${problem.message}`);
  });
  return { element, update, close: () => (closed = true) };
}
