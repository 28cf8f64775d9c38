// SPDX-License-Identifier: Apache-2.0
// REST and server-sent events. The session's cookie is sent by the browser; no token is kept here.

// Relative, as a proxy may serve the page below a path of its own.
const API = new URL("api/v1", document.baseURI).pathname;
const SILENT_SECONDS = 4;
const RETRY_SECONDS = [1, 2, 5];

/** An error of the API (RFC 9457); status 0: it does not answer. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Send a request; returns {body, etag, total}, throws Problem. The end of a session is the event "logged-out" of `document`. */
export async function ask(method, path, body, etag) {
  const headers = {};
  const request = { method, headers };
  if (body !== undefined) {
    headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  if (etag) headers["if-match"] = etag;
  let answer;
  try {
    answer = await fetch(API + path, request);
  } catch {
    throw new Problem(0, "the controller does not answer");
  }
  const text = await answer.text();
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    throw new Problem(answer.status, `the answer is no JSON (status ${answer.status})`);
  }
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/session") document.dispatchEvent(new Event("logged-out"));
    throw new Problem(answer.status, content?.detail ?? answer.statusText);
  }
  return { body: content, etag: answer.headers.get("etag"), total: Number(answer.headers.get("x-total-count")) };
}

/** Return the parameters that are set, as a query. */
export function query(parameters) {
  const set = Object.entries(parameters).filter(([, value]) => value !== "" && value != null);
  return set.length ? `?${new URLSearchParams(set)}` : "";
}

/** The one stream of events of this page. It reconnects by itself; `tell` gets "connecting", "live" or "lost",
 * `expecting` says whether there is anything that events should come of. */
export class Stream {
  constructor(tell, expecting) {
    this.tell = tell;
    this.expecting = expecting;
    this.source = null;
    this.timer = 0;
    this.tries = 0;
  }

  /** Follow `path`; `take(kind, data)` gets each event. An earlier stream ends. */
  open(path, take) {
    this.close();
    this.path = path;
    this.take = take;
    this.connect();
  }

  connect() {
    clearTimeout(this.timer);
    this.tell(this.tries ? "lost" : "connecting");
    const source = (this.source = new EventSource(API + this.path));
    for (const kind of ["access_point", "problem"]) {
      source.addEventListener(kind, (event) => {
        if (source !== this.source) return;
        this.live();
        this.take(kind, JSON.parse(event.data));
      });
    }
    source.addEventListener("open", () => {
      if (source === this.source && !this.expecting()) this.live();
    });
    source.addEventListener("error", () => source === this.source && this.again());
    this.watch();
  }

  live() {
    this.tries = 0;
    this.tell("live");
    this.watch();
  }

  /** A connection can be dead without an error. */
  watch() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const quiet = !this.expecting() && this.source?.readyState === EventSource.OPEN;
      if (quiet) this.live();
      else this.again();
    }, SILENT_SECONDS * 1000);
  }

  again() {
    this.source?.close();
    this.tell("lost");
    const wait = RETRY_SECONDS[Math.min(this.tries++, RETRY_SECONDS.length - 1)];
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      const { source } = this;
      try {
        await ask("GET", "/session");
      } catch (problem) {
        if (source !== this.source) return;
        if (problem.status === 401) document.dispatchEvent(new Event("logged-out"));
        else this.again();
        return;
      }
      if (source === this.source) this.connect();
    }, wait * 1000);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    this.tries = 0;
  }
}
