// SPDX-License-Identifier: Apache-2.0
// The page: the session, the view that is shown (`#/`, `#/access-points/NAME` or `#/tokens`), and the one stream that feeds it.

import { Problem, Stream, ask } from "./api.js";
import { accessPoint } from "./access_point.js";
import { AccessPoint } from "./model.js";
import { tokens } from "./admin.js";
import { overview } from "./overview.js";
import { announce, h, say } from "./ui.js";

const LIST_SECONDS = 15;
const ROLES = ["viewer", "operator", "admin"];
const WORDS = { connecting: "connecting…", live: "live", lost: "disconnected" };

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const page = {
  session: null,
  access_points: new Map(),
  addresses: new Map(),
  list: () => list(),
  may: (role) => ROLES.indexOf(page.session?.role) >= ROLES.indexOf(role),
};
let view = null;
let timer = 0;

const stream = new Stream((state) => {
  const element = document.getElementById("stream");
  say(element, WORDS[state]);
  element.className = `stream ${state}`;
  main.classList.toggle("stale", state === "lost");
  warn(state === "lost" ? "No answer from the controller: what stands here is old. Trying again." : "");
}, () => page.access_points.size > 0);

function warn(text) {
  if (banner.textContent !== text) banner.textContent = text;
  banner.hidden = !text;
}

function show(next) {
  view?.close?.();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  view = next;
  main.replaceChildren(next.element);
  document.title = next.title;
}

function message(title, text) {
  return { element: h("p", { class: "empty" }, text), title };
}

/** Show the view of the page's address. */
async function route() {
  const [, name] = location.hash.match(/^#\/access-points\/([^/?]+)$/) ?? [];
  stream.close();
  if (location.hash === "#/tokens") show(tokens(page));
  else if (name === undefined) show(overview(page));
  else {
    const wanted = decodeURIComponent(name);
    const here = location.hash;
    if (!page.access_points.has(wanted)) await list();
    if (location.hash !== here) return;
    const ap = page.access_points.get(wanted);
    if (!ap) {
      show(message("No such access point", `There is no access point ${wanted}.`));
      return;
    }
    show(accessPoint(page, ap));
  }
  stream.open(view.path, take);
}

function take(kind, data) {
  const ap = page.access_points.get(data.name);
  if (kind === "access_point") {
    if (ap) ap.take(data);
    else list();
  } else if (data.detail === "removed") {
    // The list may have dropped it before.
    stream.close();
    page.access_points.delete(data.name);
    if (view.title === data.name) show(message(data.name, `Access point ${data.name} was removed.`));
  } else if (ap) {
    ap.problem = data.detail;
  }
  view.update?.();
}

/** Reload the list of access points: streams do not report removed ones. */
async function list() {
  clearTimeout(timer);
  try {
    const found = [];
    let total = 1;
    while (found.length < total) {
      const answer = await ask("GET", `/access-points?limit=500&offset=${found.length}`);
      found.push(...answer.body);
      total = answer.body.length ? answer.total : 0;
    }
    const names = new Set(found.map((entry) => entry.name));
    for (const name of page.access_points.keys()) if (!names.has(name)) page.access_points.delete(name);
    for (const entry of found) {
      if (!page.access_points.has(entry.name)) page.access_points.set(entry.name, new AccessPoint(entry.name));
      page.addresses.set(entry.name, entry.address);
    }
    view?.update?.();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status && problem.status !== 401) warn(problem.message);
  }
  if (page.session) timer = setTimeout(list, LIST_SECONDS * 1000);
}

function logIn(reason = "") {
  page.session = null;
  clearTimeout(timer);
  stream.close();
  say(document.getElementById("stream"), "");
  say(document.getElementById("who"), "");
  for (const id of ["leave", "tokens"]) document.getElementById(id).hidden = true;
  warn("");
  const why = h("p", { class: "why", role: "alert" }, reason);
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true, spellcheck: "false" });
  const button = h("button", { class: "primary" }, "Log in");
  const form = h("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    why.textContent = "";
    try {
      page.session = (await ask("POST", "/session", { token: token.value.trim() })).body;
      await start();
    } catch (problem) {
      why.textContent = problem.status === 401 ? "This token is not valid: it is wrong, expired or revoked." : problem.message;
      token.select();
    }
    button.disabled = false;
  } },
  h("h1", {}, "Log in"), h("label", { for: "token" }, "Token"), token, button, why,
  h("p", { class: "faint small" }, "The controller says at its first start in which file the first token is. An admin makes more on the page Tokens or with ", h("code", {}, "apctl token create"), "."));
  show({ element: form, title: "Log in" });
  token.focus();
}

async function start() {
  say(document.getElementById("who"), `${page.session.name} (${page.session.role})`);
  document.getElementById("leave").hidden = false;
  document.getElementById("tokens").hidden = !page.may("admin");
  await list();
  await route();
}

document.addEventListener("logged-out", () => page.session && logIn("The session is over. Please log in again."));
document.getElementById("leave").addEventListener("click", async () => {
  await ask("DELETE", "/session").catch(() => {});
  page.access_points.clear();
  logIn();
  announce("logged out");
});
addEventListener("hashchange", async () => {
  if (!page.session) return;
  await route();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
});

const theme = document.getElementById("theme");
theme.value = document.documentElement.dataset.theme ?? "auto";
theme.addEventListener("change", () => {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  localStorage.setItem("theme", theme.value);
  document.dispatchEvent(new Event("theme"));
});

async function begin() {
  try {
    page.session = (await ask("GET", "/session")).body;
  } catch (problem) {
    if (problem.status === 401) logIn();
    else {
      warn(`${problem.message}. Trying again.`);
      setTimeout(begin, 2000);
    }
    return;
  }
  warn("");
  await start();
}
begin();
