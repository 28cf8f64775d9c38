// SPDX-License-Identifier: Apache-2.0
// Elements, numbers with units, and drawing at most once a frame.

/** An element: `h("td", {class: "number", onclick: f}, "text", child)`. Text is never HTML. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Change a text only when it differs: an unchanged text costs no layout. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function mark(element, name, on) {
  if (element.classList.contains(name) !== on) element.classList.toggle(name, on);
}

/** Announce a text to screen readers. */
export function announce(text) {
  document.getElementById("said").textContent = text;
}

const waiting = new Set();
/** Call `draw` with the next frame, once. */
export function soon(draw) {
  if (!waiting.size) {
    requestAnimationFrame(() => {
      const now = [...waiting];
      waiting.clear();
      for (const each of now) each();
    });
  }
  waiting.add(draw);
}

const DASH = "–";

/** Format a number with three significant digits. */
export function number(value) {
  if (value == null || !Number.isFinite(value)) return DASH;
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString("en");
  if (size >= 10) return value.toFixed(1);
  return size < 0.005 ? "0" : value.toFixed(2);
}

export function rate(bps) {
  if (bps == null || !Number.isFinite(bps)) return DASH;
  for (const [unit, size] of [["Gbit/s", 1e9], ["Mbit/s", 1e6]]) if (bps >= size) return `${number(bps / size)} ${unit}`;
  return `${number(bps / 1e3)} kbit/s`;
}

export function size(bytes) {
  if (bytes == null) return DASH;
  for (const [unit, each] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (bytes >= each) return `${number(bytes / each)} ${unit}`;
  return `${bytes} B`;
}

export const percent = (value) => (value == null ? DASH : `${number(value * 100)} %`);
export const milliseconds = (value) => (value == null ? DASH : value < 999.5 ? `${number(value)} ms` : `${number(value / 1000)} s`);
export const perSecond = (value) => (value == null ? DASH : `${number(value)}/s`);
export const count = (value) => (value == null ? DASH : Math.round(value).toLocaleString("en"));

export function ago(time, now = Date.now() / 1000) {
  const seconds = Math.max(0, now - time);
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

const PROTOCOLS = { 1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMPv6", 132: "SCTP" };
export const protocol = (value) => PROTOCOLS[value] ?? `protocol ${value}`;
export const end = (address, port) => (address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`);

/** Names of the classes, as in `class-weights`. */
export const className = (id) => ({ 1: "downlink", 2: "uplink" })[id] ?? (id ? `class ${id}` : "none");
export const classColour = (id) => ({ 1: "--down", 2: "--up" })[id] ?? "--other";
export const weightName = (id) => ({ 1: "downlink", 2: "uplink" })[id] ?? "other";
