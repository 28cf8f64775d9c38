// SPDX-License-Identifier: Apache-2.0
// Time charts on canvas: lines over one time axis that all charts of a view share, with one cursor for all of them.

import { h, say, soon } from "./ui.js";

const LEFT = 52;
const BOTTOM = 18;
const TOP = 8;
const RIGHT = 6;

let colours = {};
/** A custom property of the style sheet. */
export function colour(name) {
  return (colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim());
}
const forget = () => (colours = {});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forget);
document.addEventListener("theme", forget);

/** A canvas's context in CSS pixels, cleared. */
function fresh(canvas) {
  const scale = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

/** A line through [x, y] points; null breaks it. */
function line(pen, points, style, width = 1.5, dash = []) {
  pen.beginPath();
  let drawing = false;
  for (const point of points) {
    if (point) pen[drawing ? "lineTo" : "moveTo"](point[0], point[1]);
    drawing = point != null;
  }
  pen.strokeStyle = style;
  pen.lineWidth = width;
  pen.lineJoin = "round";
  pen.setLineDash(dash);
  pen.stroke();
  pen.setLineDash([]);
}

/** A line without axes: the last `seconds` of samples, each series [colour, value of a sample]. */
export function spark(canvas, samples, series, seconds) {
  const { pen, width, height } = fresh(canvas);
  const end = samples.at(-1)?.time ?? 0;
  const shown = samples.filter((sample) => sample.time >= end - seconds);
  const top = Math.max(1e-9, ...shown.flatMap((sample) => series.map(([, value]) => value(sample) ?? 0)));
  for (const [name, value] of series) {
    const at = (sample) => [width - 1 - ((end - sample.time) / seconds) * width, height - 1.5 - ((value(sample) ?? 0) / top) * (height - 3)];
    line(pen, shown.map(at), colour(name), 1.25);
  }
}

/** The next larger of 1, 2, 5 times a power of ten. */
function nice(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return size * [1, 2, 5, 10].find((step) => step * size >= value * 0.999);
}

const clock = (time, withDate, withSeconds) => {
  const options = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (withSeconds) options.second = "2-digit";
  if (withDate) return new Date(time * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", ...options });
  return new Date(time * 1000).toLocaleTimeString("en-GB", options);
};
const TIME_STEPS = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** Format a value next to an axis. */
const short = (text) => text.replace("bit/s", "").replace(/^[\d.]+/, (digits) => String(Number(digits)));

/** Charts of one view: the same time range, cursor and markers. */
export class Charts {
  constructor() {
    this.all = [];
    this.samples = [];
    this.markers = [];
    this.cursor = null;
    this.seconds = 120;
    this.step = 1;
    this.redraw = () => {
      for (const chart of this.all) chart.draw();
    };
    this.resized = new ResizeObserver(() => soon(this.redraw));
    document.addEventListener("theme", this.redraw);
  }

  /** A chart: `series` are {name, colour, value(sample), dash}, `unit(value)` a text, `least` the smallest full scale. */
  add(title, unit, least, series) {
    const chart = new Chart(this, title, unit, least, series);
    this.all.push(chart);
    this.resized.observe(chart.canvas);
    return chart.element;
  }

  show(samples, seconds, step) {
    Object.assign(this, { samples, seconds, step });
    soon(this.redraw);
  }

  point(cursor) {
    this.cursor = cursor;
    soon(this.redraw);
  }

  close() {
    this.resized.disconnect();
    document.removeEventListener("theme", this.redraw);
  }
}

class Chart {
  constructor(charts, title, unit, least, series) {
    Object.assign(this, { charts, unit, least, series });
    this.canvas = h("canvas", { tabindex: "0", role: "img", class: "plot", "aria-label": title, "aria-description": "Arrow keys move the cursor" });
    this.label = title;
    this.values = series.map(() => h("b", {}, "–"));
    this.when = h("span", { class: "faint when" });
    this.title = title;
    const legend = series.map((entry, index) => {
      const swatch = h("i", { class: entry.dash ? "swatch dashed" : "swatch", "aria-hidden": "true" });
      swatch.style.color = `var(${entry.colour})`;
      return h("li", {}, swatch, entry.name, " ", this.values[index]);
    });
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("h3", {}, title), this.when, h("ul", { class: "legend" }, ...legend)), this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.charts.point(this.timeAt(event.offsetX)));
    this.canvas.addEventListener("pointerleave", () => this.charts.point(null));
    // This text changes every second: a screen reader reads it when it appears, and when the cursor moves.
    this.canvas.addEventListener("focus", () => this.canvas.setAttribute("aria-label", this.label));
    this.canvas.addEventListener("blur", () => this.charts.point(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { charts } = this;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key];
    if (event.key === "Escape") charts.point(null);
    else if (step) charts.point(Math.min(this.end, Math.max(this.end - charts.seconds, (charts.cursor ?? this.end) + step * charts.step)));
    else return;
    event.preventDefault();
  }

  get end() {
    return this.charts.samples.at(-1)?.time ?? Date.now() / 1000;
  }

  timeAt(x) {
    const width = this.canvas.clientWidth - LEFT - RIGHT;
    return this.end - this.charts.seconds * (1 - Math.min(1, Math.max(0, (x - LEFT) / width)));
  }

  draw() {
    const { charts, series } = this;
    const { pen, width, height } = fresh(this.canvas);
    if (width < LEFT + 40) return;
    const end = this.end;
    const start = end - charts.seconds;
    const shown = charts.samples.filter((sample) => sample.time >= start);
    const rows = shown.map((sample) => series.map((entry) => entry.value(sample)));
    let most = this.least;
    for (const row of rows) for (const value of row) if (value > most) most = value;
    const step = nice(most / 3);
    const top = step * Math.ceil(most / step - 1e-9);
    const x = (time) => LEFT + ((time - start) / charts.seconds) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);

    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour("--faint");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (let value = 0; value <= top * 1.001; value += step) {
      line(pen, [[LEFT, y(value)], [width - RIGHT, y(value)]], colour("--line"), 1);
      pen.fillText(value ? short(this.unit(value)) : "0", LEFT - 6, y(value));
    }
    pen.textAlign = "center";
    const gap = TIME_STEPS.find((each) => (each / charts.seconds) * (width - LEFT) >= 84) ?? 86400;
    const zone = new Date(end * 1000).getTimezoneOffset() * 60;
    for (let time = Math.ceil((start - zone) / gap) * gap + zone; time < end; time += gap) {
      if (x(time) < LEFT + 16 || x(time) > width - 24) continue;
      pen.fillText(gap >= 86400 ? clock(time, true).split(",")[0] : clock(time, false, gap < 60), x(time), height - 7);
    }
    for (const marker of charts.markers) {
      if (marker.time < start) continue;
      line(pen, [[x(marker.time), TOP], [x(marker.time), height - BOTTOM]], colour("--accent"), 1, [3, 3]);
      pen.fillStyle = colour("--accent");
      pen.textAlign = x(marker.time) > width - 140 ? "right" : "left";
      pen.fillText(marker.text, x(marker.time) + (pen.textAlign === "left" ? 4 : -4), TOP + 5);
    }
    series.forEach((entry, index) => {
      const points = [];
      shown.forEach((sample, row) => {
        if (row && sample.time - shown[row - 1].time > 3.5 * charts.step) points.push(null);
        const value = rows[row][index];
        points.push(value == null ? null : [x(sample.time), y(value)]);
      });
      line(pen, points, colour(entry.colour), entry.dash ? 1 : 1.5, entry.dash ? [4, 3] : []);
    });
    this.tell(shown, rows, x, height, pen);
  }

  /** The values under the cursor, or the last ones. */
  tell(shown, rows, x, height, pen) {
    const { cursor } = this.charts;
    let row = shown.length - 1;
    if (cursor != null && shown.length) {
      row = shown.reduce((best, sample, index) => (Math.abs(sample.time - cursor) < Math.abs(shown[best].time - cursor) ? index : best), 0);
      const at = x(shown[row].time);
      line(pen, [[at, TOP], [at, height - BOTTOM]], colour("--faint"), 1);
    }
    const texts = this.series.map((entry, index) => this.unit(row < 0 ? null : rows[row][index]));
    texts.forEach((text, index) => say(this.values[index], text));
    say(this.when, cursor != null && row >= 0 ? clock(shown[row].time, this.charts.seconds > 86400, true) : "");
    this.label = `${this.title}, ${this.when.textContent || "now"}: ${this.series.map((entry, index) => `${entry.name} ${texts[index]}`).join(", ")}`;
    if (cursor != null && document.activeElement === this.canvas) this.canvas.setAttribute("aria-label", this.label);
    if (!shown.length) {
      pen.fillStyle = colour("--faint");
      pen.textAlign = "center";
      pen.fillText("nothing measured in this time", x(this.end - this.charts.seconds / 2), height / 2);
    }
  }
}
