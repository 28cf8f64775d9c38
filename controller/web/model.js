// SPDX-License-Identifier: Apache-2.0
// Samples: the values of each port in an event or a row of history, as rates. A sample is {time, ports: Map(number -> record)}.

const sum = (values) => values.reduce((total, value) => total + value, 0);
/** Measures of ports and classes, from GET /measures; empty until it has answered. */
export const MEASURES = [];

/** Each measure of a port: of counters the rate per second (bits for bytes), of its classes the sum or the largest. */
function measured(port, then, seconds) {
  const values = {};
  for (const { name, level, unit, counter } of MEASURES) {
    const of = level === "port" ? [[port, then]] : port.classes.map((now) => [now, then.classes.find((entry) => entry.class_id === now.class_id)]);
    const each = of.map(([now, old]) => (counter ? ((now[name] - (old?.[name] ?? 0)) / seconds) * (unit === "bytes" ? 8 : 1) : now[name]));
    values[name] = together(each.filter((value) => value != null), counter);
  }
  return values;
}
const together = (values, added) => (values.length ? (added ? sum(values) : Math.max(...values)) : null);

const COUNTS = ["sent_bytes", "marked_packets", "dropped_packets", "refused_packets", "filtered_packets"];

/** The sample between two events of one access point; null for the first, and after a reset of its counters. */
export function between(before, event) {
  const seconds = before ? event.time - before.time : 0;
  if (seconds <= 0) return null;
  const ports = new Map();
  for (const port of event.ports) {
    const then = before.ports.find((entry) => entry.port === port.port);
    if (!then) return null;
    const classes = new Map();
    for (const now of port.classes) {
      const old = then.classes.find((entry) => entry.class_id === now.class_id);
      const [sent, marked, dropped, refused, filtered] = COUNTS.map((name) => (now[name] - (old?.[name] ?? 0)) / seconds);
      if (Math.min(sent, marked, dropped, refused, filtered) < 0) return null;
      classes.set(now.class_id, {
        sent: sent * 8, marked, dropped: dropped + refused, filtered, feedback: now.feedback, desired: now.desired_bps,
        arriving: now.arriving_bps,
      });
    }
    const all = [...classes.values()];
    ports.set(port.port, {
      sent: sum(all.map((entry) => entry.sent)),
      delay: port.delay_ms, queue: port.queue_packets, device: port.device, flow: port.largest_flow,
      downlink: classes.get(1)?.feedback ?? 0, uplink: classes.get(2)?.feedback ?? 0,
      marked: sum(all.map((entry) => entry.marked)), dropped: sum(all.map((entry) => entry.dropped)),
      filtered: sum(all.map((entry) => entry.filtered)), classes, ...prefixed(measured(port, then, seconds)),
    });
  }
  return { time: event.time, ports };
}

/** The names of measures as those of a sample's record, which has some of its own. */
const prefixed = (values) => Object.fromEntries(Object.entries(values).map(([name, value]) => [`measure ${name}`, value]));

/** The samples of GET .../history. */
export function fromHistory(history) {
  const samples = new Map();
  const step = history.resolution;
  for (const { port, columns } of history.ports) {
    columns.time.forEach((time, row) => {
      if (!samples.has(time)) samples.set(time, { time: time + step / 2, ports: new Map() });
      samples.get(time).ports.set(port, {
        sent: columns.sent_downlink_bps[row] + columns.sent_uplink_bps[row] + columns.sent_other_bps[row],
        delay: columns.delay_ms[row], queue: columns.queue_packets[row],
        device: columns.feedback_device[row], flow: columns.feedback_flow[row],
        downlink: columns.feedback_downlink[row], uplink: columns.feedback_uplink[row],
        marked: columns.marked_packets[row] / step,
        dropped: (columns.dropped_packets[row] + columns.refused_packets[row]) / step,
        filtered: columns.filtered_packets[row] / step,
        ...prefixed(Object.fromEntries(MEASURES.map(({ name, unit, counter, history: of }) => {
          const value = together(of.map((column) => columns[column]?.[row]).filter((one) => one != null), counter);
          return [name, counter && unit !== "bytes" && value != null ? value / step : value];
        }))),
      });
    });
  }
  return [...samples.entries()].sort(([a], [b]) => a - b).map(([, sample]) => sample);
}

/** One value of a sample over the ports that `wanted` takes: their sum, or the largest. */
function over(sample, wanted, name, how) {
  let result = null;
  for (const [port, record] of sample.ports) {
    if (!wanted(port)) continue;
    result = result == null ? record[name] : how === "sum" ? result + record[name] : Math.max(result, record[name]);
  }
  return result;
}
export const total = (sample, wanted, name) => over(sample, wanted, name, "sum");
export const largest = (sample, wanted, name) => over(sample, wanted, name, "max");

/** An access point as the page knows it: the last event, and live samples of some minutes. */
export class AccessPoint {
  constructor(name) {
    this.name = name;
    this.event = null;
    this.samples = [];
    this.problem = null;
  }

  take(event) {
    const before = this.event;
    this.event = event;
    this.problem = event.problem;
    // An access point that is not under control is not measured: a gap, not zeros.
    const sample = this.ready && before?.state === "ready" ? between(before, event) : null;
    if (sample) this.samples.push(sample);
    if (this.samples.length > 720) this.samples.splice(0, 120);
  }

  get ready() {
    return this.event?.state === "ready";
  }

  get last() {
    return (this.ready && this.samples.at(-1)) || null;
  }

  /** Ports with this role, as a filter. */
  role(role) {
    const ports = new Set((this.event?.ports ?? []).filter((port) => port.role === role).map((port) => port.port));
    return (port) => ports.has(port);
  }

  /** Current figures: rates by direction in bit/s, the longest delay of a regulated port and its target in ms, ... */
  now() {
    if (!this.ready) return {};
    const { last, event } = this;
    const all = () => true;
    let delay = null;
    let target = null;
    let feedback = null;
    for (const port of event.ports) {
      if (!port.regulated) continue;
      if (delay == null || port.delay_ms > delay) [delay, target] = [port.delay_ms, port.target_ms];
      const classes = Math.max(0, ...port.classes.map((entry) => entry.feedback));
      feedback = Math.max(feedback ?? 0, Math.min(1, port.device + classes + port.largest_flow));
    }
    return {
      down: last && total(last, this.role("station"), "sent"), up: last && total(last, this.role("uplink"), "sent"),
      marked: last && total(last, all, "marked"), dropped: last && total(last, all, "dropped"),
      filtered: last && total(last, all, "filtered"), delay, target, feedback,
    };
  }
}
