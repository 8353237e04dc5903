// The API's description: openapi.json as a page of its own, with nothing loaded from elsewhere.
import { el } from "./dom.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
let schemas = {};

async function show() {
  const intro = document.getElementById("intro");
  try {
    const description = await (await fetch("openapi.json")).json();
    schemas = description.components?.schemas ?? {};
    document.getElementById("version").textContent = `API ${description.info.version}`;
    intro.replaceChildren(...withCode(description.info.description ?? ""));
    document.getElementById("endpoints").append(...groups(description.paths));
  } catch {
    intro.textContent = "The gateway's description cannot be read. Check that it runs (make run) and load this page again.";
  }
}

/** One section per tag, in the order in which the tags first occur. */
function groups(paths) {
  const found = new Map();
  for (const [path, operations] of Object.entries(paths)) {
    for (const method of METHODS.filter((name) => name in operations)) {
      const tag = operations[method].tags?.[0] ?? "other";
      found.set(tag, [...(found.get(tag) ?? []), endpoint(method, path, operations[method])]);
    }
  }
  return [...found].map(([tag, entries]) => el("section", { className: "group", "aria-label": tag }, el("h2", {}, tag), ...entries));
}

function endpoint(method, path, operation) {
  return el("details", { className: "endpoint" },
    el("summary", {}, el("b", { className: `method ${method}` }, method.toUpperCase()), el("code", {}, path),
      el("span", { className: "faint" }, operation.summary ?? "")),
    el("p", {}, ...withCode(operation.description ?? "")),
    ...parameters(operation.parameters ?? []),
    ...bodies(operation.requestBody?.content ?? {}));
}

function parameters(list) {
  if (!list.length) return [];
  return [el("h3", {}, "Parameters"), table(list.map(({ name, schema, required, description }) =>
    ({ name, type: typeName(schema ?? {}), required, description: description ?? schema?.description })))];
}

function bodies(content) {
  return Object.entries(content).flatMap(([type, { schema }]) => [el("h3", {}, "Body, ", el("code", {}, type)), fields(schema ?? {})]);
}

/** The fields of an object schema; fields that are objects themselves unfold. */
function fields(schema, depth = 0) {
  const { properties, required = [], description } = resolve(schema);
  if (!properties) return el("p", { className: "faint" }, description ?? typeName(schema));
  return table(Object.entries(properties).map(([name, property]) => ({
    name,
    type: typeName(property),
    required: required.includes(name),
    description: property.description,
    inner: depth < 3 ? innerObject(property) : null,
    depth,
  })));
}

function table(rows) {
  return el("dl", { className: "fields" }, ...rows.map(({ name, type, required, description, inner, depth }) => el("div", {},
    el("dt", {}, el("code", {}, name), el("span", { className: "faint" }, ` ${type}${required ? ", required" : ""}`)),
    el("dd", {}, ...withCode(description ?? ""), inner && el("details", {}, el("summary", {}, "Fields"), fields(inner, depth + 1))))));
}

function resolve(schema) {
  return schema.$ref ? schemas[schema.$ref.split("/").pop()] ?? {} : schema;
}

/** The object schema inside a field (direct, in a list, or one of several), or null. */
function innerObject(schema) {
  const found = resolve(schema);
  if (found.properties) return found;
  if (found.items) return innerObject(found.items);
  return (found.anyOf ?? found.oneOf ?? []).map(innerObject).find(Boolean) ?? null;
}

function typeName(schema) {
  const found = resolve(schema);
  const options = found.anyOf ?? found.oneOf;
  if (options) return [...new Set(options.map(typeName))].filter((name) => name !== "null").join(" or ");
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" or ");
  if ("const" in found) return JSON.stringify(found.const);
  if (found.type === "array") return found.items ? `list of ${typeName(found.items)}` : "list";
  return found.type ?? "anything";
}

/** Text with `code` between backticks (single or double) set as code. */
function withCode(text) {
  return text.split(/(``?[^`]+``?)/).filter(Boolean).map((part) =>
    part.startsWith("`") ? el("code", {}, part.replace(/`/g, "")) : document.createTextNode(part));
}

show();
