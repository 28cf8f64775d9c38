// SPDX-License-Identifier: Apache-2.0
// The OpenAPI document for people: each operation with its parameters, bodies and answers, and examples of them.

import { h } from "./ui.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const main = document.getElementById("main");
let schemas = {};

const resolved = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").pop()] : schema) ?? {};

/** A schema in a few words: "integer, 1 to 10", "list of Port". */
function words(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(words).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.type === "array") return `list of ${words(schema.items)}`;
  const least = schema.minimum ?? schema.exclusiveMinimum;
  const most = schema.maximum ?? schema.exclusiveMaximum;
  const range = [];
  if (least !== undefined) range.push(`${schema.minimum === undefined ? "above" : "from"} ${least}`);
  if (most !== undefined) range.push(`${schema.maximum === undefined ? "below" : "to"} ${most}`);
  return [schema.type ?? "anything", range.join(" ")].filter(Boolean).join(", ");
}

/** An example of a schema: its own, or one of its parts'. */
function example(schema, depth = 0) {
  const whole = resolved(schema);
  if (whole.examples) return whole.examples[0];
  if (whole.default !== undefined) return whole.default;
  if (whole.anyOf) return example(whole.anyOf[0], depth);
  if (whole.type === "array") return depth < 4 ? [example(whole.items, depth + 1)] : [];
  if (whole.properties && depth < 4) {
    return Object.fromEntries(Object.entries(whole.properties).map(([key, part]) => [key, example(part, depth + 1)]));
  }
  return { string: "text", integer: 0, number: 0, boolean: true }[whole.type] ?? null;
}

function table(head, rows) {
  if (!rows.length) return null;
  return h("div", { class: "scroll" }, h("table", { class: "grid" },
    h("thead", {}, h("tr", {}, ...head.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...rows.map((cells) => h("tr", {}, ...cells.map((cell) => h("td", {}, cell)))))));
}

/** The fields of a request's body or of an answer, and an example. */
function body(title, content, optional) {
  const [kind, { schema }] = Object.entries(content ?? {})[0] ?? ["", {}];
  if (!schema) return [];
  const fields = resolved(schema.type === "array" ? schema.items : schema);
  const required = new Set(fields.required ?? []);
  return [
    h("h4", {}, `${title}: ${words(schema)}`, h("span", { class: "faint" }, ` ${kind}`)),
    table(["field", "what it is", ""], Object.entries(fields.properties ?? {}).map(([name, part]) => [
      h("code", {}, name), words(part) + (required.has(name) ? "" : optional), part.description ?? "",
    ])),
    kind.includes("json") ? h("pre", { tabindex: "0" }, JSON.stringify(example(schema), null, 2)) : null,
  ];
}

function operation(path, method, it) {
  const answers = Object.entries(it.responses);
  const good = answers.find(([status, answer]) => status.startsWith("2") && answer.content);
  return h("details", { id: it.operationId },
    h("summary", {}, h("b", { class: `method ${method}` }, method.toUpperCase()), h("code", {}, path),
      h("span", { class: "faint" }, it.description ?? it.summary ?? "")),
    table(["parameter", "in", "what it is", ""], (it.parameters ?? []).map((part) => [
      h("code", {}, part.name), part.in, words(part.schema) + (part.required ? ", needed" : ""), part.description ?? "",
    ])),
    ...body("Body", it.requestBody?.content, ", may be left out"),
    ...body(`Answer ${good?.[0]}`, good?.[1].content, ""),
    h("h4", {}, "All answers"),
    table(["status", ""], answers.map(([status, answer]) => [status, answer.description])));
}

function show(api) {
  schemas = api.components.schemas;
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const method of METHODS.filter((name) => methods[name])) {
      const tag = methods[method].tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), operation(path, method, methods[method])]);
    }
  }
  main.replaceChildren(
    h("h1", {}, `${api.info.title} ${api.info.version}`),
    h("pre", { class: "intro", tabindex: "0" }, api.info.description),
    ...[...groups].map(([tag, operations]) => h("section", {}, h("h2", {}, tag), ...operations)));
  if (location.hash) document.getElementById(location.hash.slice(1))?.setAttribute("open", "");
}

try {
  const answer = await fetch("openapi.json");
  if (answer.ok) show(await answer.json());
  else if (answer.status === 401) {
    main.replaceChildren(h("p", { class: "empty" }, h("a", { href: "./" }, "Log in"), " first, then come back."));
  } else throw new Error(`status ${answer.status}`);
} catch (error) {
  main.replaceChildren(h("p", { class: "empty" }, `The controller does not answer: ${error.message}`));
}
