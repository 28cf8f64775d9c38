// SPDX-License-Identifier: Apache-2.0
// Classes: the weight of each, its share compared with that, and sliders that change the weights of an access point.

import { Problem, ask } from "./api.js";
import { announce, classColour, className, count, h, percent, perSecond, rate, say, weightName } from "./ui.js";

const STEPS = [0.1, 0.2, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 50, 64, 100];
const RECENT_SECONDS = 5;

const nearest = (weight) =>
  STEPS.reduce((best, step, index) => (Math.abs(Math.log(step / weight)) < Math.abs(Math.log(STEPS[best] / weight)) ? index : best), 0);

/** A slider with a number next to it; `change(weight)` when it is released. Changes wait for each other, only the last counts. */
export function slider(label, change) {
  const range = h("input", { type: "range", min: 0, max: STEPS.length - 1, step: 1, "aria-label": `Weight of ${label}` });
  const exact = h("input", { type: "number", min: 0.001, max: 1000, step: "any", "aria-label": `Weight of ${label}, exact` });
  let moving = false;
  let working = false;
  let next = null;
  range.addEventListener("input", () => {
    moving = true;
    exact.value = STEPS[range.value];
    range.setAttribute("aria-valuetext", exact.value);
  });
  range.addEventListener("change", () => done(STEPS[range.value]));
  for (const kind of ["pointerup", "blur"]) range.addEventListener(kind, () => (moving = false));
  exact.addEventListener("focus", () => (moving = true));
  exact.addEventListener("change", () => exact.reportValidity() && done(Number(exact.value)));
  exact.addEventListener("blur", () => (moving = false));
  async function done(weight) {
    moving = false;
    next = weight;
    if (working) return;
    working = true;
    while (next !== null) {
      const wanted = next;
      next = null;
      await change(wanted);
    }
    working = false;
  }
  return {
    element: h("span", { class: "slider" }, range, exact),
    /** Show the current weight, unless the user is changing it. */
    set(weight, allowed) {
      range.disabled = exact.disabled = !allowed;
      if (moving || working) return;
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
  let busy = false;
  const note = h("p", { class: "note", role: "status" });
  const body = h("tbody", { role: "rowgroup" });
  const TITLES = ["Class", "Weight", "Share of the port", "Sent", "Class term", "Marks", "Drops", "ACKs filtered"];
  const table = h("table", { class: "grid classes cards", role: "table", "aria-label": "Classes and weights" },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...TITLES.map((title, index) =>
      h("th", { scope: "col", role: "columnheader", class: index > 2 ? "number" : "" }, title)))), body);
  const element = h("section", { "aria-label": "Classes" }, h("h2", {}, "Classes"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of classes" }, table),
    h("p", { class: "faint small" }, `Of each port, bar: share of the last ${RECENT_SECONDS} s; line: share by weight among the classes with traffic. `
      + "A class that asks for less than its share leaves the rest to the others."), note);

  async function read() {
    if (busy) return;
    busy = true;
    try {
      const { body: weights, etag } = await ask("GET", `${path}/class-weights`);
      [current, tag] = [weights, etag];
    } finally {
      busy = false;
    }
  }

  async function change(name, weight) {
    const before = current?.[name];
    if (before === weight) return;
    while (busy) await new Promise((resume) => setTimeout(resume, 20));
    busy = true;
    say(note, "Applying…");
    note.className = "note";
    try {
      const answer = await ask("PATCH", `${path}/class-weights`, { [name]: weight }, tag);
      [current, tag] = [answer.body, answer.etag];
      busy = false;
      say(note, `Weight of ${name} is ${weight}${ap.event?.state === "ready" ? " now; the next tick uses it" : ", for when the switch is back"}.`);
      marked(`${name} ${before} → ${weight}`);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      note.className = "note why";
      busy = false;
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
    const share = h("td", { role: "cell", class: "share" });
    const handle = slider(name === className(id) ? name : `${name}, ${className(id)}`, (weight) => change(name, weight));
    const cells = TITLES.slice(3).map((title) => h("td", { class: "number", role: "cell", "data-label": title }));
    const made = { share, bars: new Map(), handle, cells };
    made.element = h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, swatch, className(id)), h("td", { role: "cell" }, handle.element), share, ...cells);
    rows.set(id, made);
    for (const [, each] of [...rows].sort(([a], [b]) => a - b)) body.append(each.element);
    return made;
  }

  /** A class's part of one port, and the part that its weight gives it. */
  function bar(made, id, port) {
    const fill = h("i", { class: "fill" });
    fill.style.background = `var(${classColour(id)})`;
    const due = h("i", { class: "due" });
    const text = h("span", { class: "share-text" });
    const element = h("span", {}, h("span", { class: "share-port" }, `port ${port} `), h("span", { class: "bar-share", "aria-hidden": "true" }, fill, due), text);
    made.share.append(element);
    const one = { fill, due, text, element };
    made.bars.set(port, one);
    return one;
  }

  /** By port: bytes of each class in the last seconds, their sum, and the weights of those with traffic. */
  function recently() {
    const ports = new Map();
    const begin = (ap.last?.time ?? 0) - RECENT_SECONDS;
    for (const sample of ap.samples.filter((each) => each.time > begin)) {
      for (const [port, record] of sample.ports) {
        if (!wanted(port)) continue;
        if (!ports.has(port)) ports.set(port, new Map());
        const sent = ports.get(port);
        for (const [id, each] of record.classes) sent.set(id, (sent.get(id) ?? 0) + each.sent);
      }
    }
    return ports;
  }

  function update() {
    const { event, last } = ap;
    if (!event) return;
    const ports = recently();
    const weight = new Map(event.classes.map((entry) => [entry.class_id, entry.weight]));
    if (current && !busy && [...weight].some(([id, value]) => current[weightName(id)] !== value)) read().then(update, () => {});
    const allowed = page.may("operator") && tag != null;
    for (const [id, worth] of weight) {
      const made = rows.get(id) ?? row(id);
      made.handle.set(current?.[weightName(id)] ?? worth, allowed);
      for (const [port, sent] of ports) {
        const all = [...sent.values()].reduce((total, each) => total + each, 0);
        const together = [...sent].reduce((total, [each, volume]) => total + (volume > 0 ? weight.get(each) : 0), 0);
        const mine = sent.get(id) ?? 0;
        const one = made.bars.get(port) ?? bar(made, id, port);
        one.element.hidden = !(mine > 0);
        one.fill.style.width = `${all ? (100 * mine) / all : 0}%`;
        one.due.style.left = `${together ? (100 * worth) / together : 0}%`;
        say(one.text, mine > 0 ? `${count((100 * mine) / all)} %, by weight ${count((100 * worth) / together)} %` : "");
      }
      for (const [port, one] of made.bars) if (!ports.has(port)) one.element.hidden = true;
      const now = [...(last?.ports ?? [])].filter(([port]) => wanted(port)).map(([, record]) => record.classes.get(id)).filter(Boolean);
      const sum = (name) => (now.length ? now.reduce((total, each) => total + each[name], 0) : null);
      const feedback = now.length ? Math.max(...now.map((each) => each.feedback)) : null;
      [rate(sum("sent")), percent(feedback), perSecond(sum("marked")), perSecond(sum("dropped")), perSecond(sum("filtered"))]
        .forEach((text, index) => say(made.cells[index], text));
    }
    if (!page.may("operator") && !note.textContent) say(note, "Your role, viewer, may look but not change weights.");
  }

  read().then(update, (problem) => {
    note.className = "note why";
    say(note, `Weights cannot be changed now: ${problem.message}`);
  });
  return { element, update };
}
