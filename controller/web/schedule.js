// SPDX-License-Identifier: Apache-2.0
// Other rates of ports at other times of the day.

import { ask } from "./api.js";
import { confirmed, dialog, field, listing, numberIn } from "./forms.js";
import { rate } from "./ui.js";

const DAYS = { mon: "Monday", tue: "Tuesday", wed: "Wednesday", thu: "Thursday", fri: "Friday", sat: "Saturday", sun: "Sunday" };
const CHOICES = [["", "every day"], ["mon,tue,wed,thu,fri", "Monday to Friday"], ["sat,sun", "Saturday and Sunday"], ...Object.entries(DAYS)];
const daysOf = (days) => CHOICES.find(([each]) => each === (days ?? []).join())?.[1] ?? days.map((day) => DAYS[day]).join(", ");

/** The periods of all ports of an access point; `tell` says what was done, `read` reads its settings again. */
export function scheduleOf(page, path, tell, read) {
  let ports = [];
  const table = listing("Schedule", ["Port", "From", "To", "Days", "Rate"], "No schedule: each port has the same rate at all times.",
    page.may("operator") ? { word: "Add a period", act: add } : null);

  /** Change the periods of a port as they are now, unless somebody else does so meanwhile. */
  async function change(number, how, text) {
    const where = `${path}/ports/${number}`;
    const { body, etag } = await ask("GET", where);
    await ask("PATCH", where, { schedule: how(body.schedule ?? []) }, etag);
    tell(text);
    read();
  }

  function add() {
    const port = field("Port", ports.map((each) => [String(each.port), `${each.port}, ${each.role}`]), String(ports[0].port));
    const start = field("From", "time", "18:00", { required: true });
    const end = field("To: not after From is on the next day", "time", "23:00", { required: true });
    const days = field("Days on which it starts", CHOICES);
    const capacity = field("Rate in Mbit/s (empty: learned)", "number", "", { min: 0.001, max: 1000000, step: "any" });
    dialog("Add a period", "Add", () => {
      const period = { start: start.input.value, end: end.input.value, capacity_bps: numberIn(capacity) === null ? "auto" : Math.round(numberIn(capacity) * 1e6) };
      if (days.input.value) period.days = days.input.value.split(",");
      return change(port.input.value, (schedule) => [...schedule, period], `Port ${port.input.value} has another rate from ${period.start} to ${period.end}.`);
    }, ...[port, start, end, days, capacity].map((each) => each.element));
  }

  const remove = (number, period) => confirmed("Remove the period", `From ${period.start} to ${period.end} port ${number} has its usual rate again.`, "Remove",
    () => change(number, (schedule) => {
      const place = schedule.findIndex((each) => JSON.stringify(each) === JSON.stringify(period));
      return schedule.filter((_, index) => index !== place);
    }, "The period is removed."));

  return {
    element: table.element,
    show(config) {
      ({ ports } = config);
      table.show(ports.flatMap(({ port, schedule }) => (schedule ?? []).map((period) => ({
        name: String(port),
        cells: [period.start, period.end, daysOf(period.days), period.capacity_bps === "auto" ? "learned" : rate(period.capacity_bps)],
        buttons: { "Remove period of port": () => remove(port, period) },
      }))));
    },
  };
}
