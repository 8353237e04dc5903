// Shows the gateway's own OpenAPI description. All text goes in as text nodes, so nothing in it can become markup.

const METHODS = ["get", "post", "put", "patch", "delete"];
const MAX_NESTING = 4;
/** Applications beside the pipeline; each describes itself where it is served. */
const APPLICATIONS = ["analyze", "articles"];
const LIMITS = [
  ["minimum", "≥ "], ["exclusiveMinimum", "> "], ["maximum", "≤ "], ["exclusiveMaximum", "< "],
  ["minLength", "characters ≥ "], ["maxLength", "characters ≤ "], ["minItems", "items ≥ "], ["maxItems", "items ≤ "], ["pattern", ""],
];
const $ = (id) => document.getElementById(id);

function el(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** The text with `code` between backticks set as code. */
function prose(text = "") {
  return text.replaceAll("``", "`").split("`").map((part, place) => (place % 2 ? el("code", {}, part) : part));
}

/** The fields of an object: required ones first, those that are not read last. */
function inOrder({ properties = {}, required = [] }) {
  const rank = ([name, { description = "" }]) => (required.includes(name) ? 0 : description.startsWith("Ignored") ? 2 : 1);
  return Object.entries(properties).sort((left, right) => rank(left) - rank(right));
}

class Schemas {
  constructor(components) {
    this.known = components?.schemas ?? {};
  }

  resolve(schema) {
    const name = schema?.$ref?.split("/").pop();
    return name ? this.known[name] ?? {} : schema ?? {};
  }

  /** The alternatives of a schema, without null; most have one. */
  kinds(schema) {
    const found = this.resolve(schema);
    const alternatives = found.anyOf ?? found.oneOf;
    if (!alternatives) return [found];
    return alternatives.flatMap((inner) => this.kinds(inner)).filter((inner) => inner.type !== "null");
  }

  type(schema) {
    return this.kinds(schema).map((kind) => this.#typeOf(kind)).join(" or ") || "anything";
  }

  #typeOf(kind) {
    const values = "const" in kind ? [kind.const] : kind.enum;
    const limits = LIMITS.filter(([key]) => key in kind).map(([key, sign]) => `${sign}${kind[key]}`);
    let name = kind.type ?? "anything";
    if (values) name = values.map((value) => JSON.stringify(value)).join(" | ");
    else if (kind.type === "array") name = `list of ${this.type(kind.items)}`;
    return limits.length ? `${name} (${limits.join(", ")})` : name;
  }

  /** A table of the fields of an object (or of a list's objects), nested ones inside; null when there are none. */
  fields(schema, depth = 0) {
    if (depth > MAX_NESTING) return null;
    const kinds = this.kinds(schema).map((kind) => (kind.type === "array" ? this.kinds(kind.items) : [kind])).flat();
    const rows = kinds.flatMap((kind) => inOrder(kind)
      .map(([name, inner]) => this.#row(name, inner, (kind.required ?? []).includes(name), depth)));
    return rows.length ? el("table", {}, el("tbody", {}, ...rows)) : null;
  }

  #row(name, schema, required, depth) {
    const about = schema.description ?? this.resolve(schema).description;
    return el("tr", {},
      el("td", {}, el("code", {}, name), required ? el("div", { className: "faint" }, "required") : null),
      el("td", {}, el("code", { className: "faint" }, this.type(schema)), el("div", {}, ...prose(about)),
        this.fields(schema, depth + 1)));
  }
}

function operationsOf(description) {
  return Object.entries(description.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, id: `${method}${path}`, ...item[method] })));
}

function showOperation(operation, schemas) {
  const body = el("div", {}, el("p", {}, ...prose(operation.description)));
  if (operation.parameters?.length) {
    const rows = operation.parameters.map(({ name, schema, description }) => el("tr", {},
      el("td", {}, el("code", {}, name)),
      el("td", {}, el("code", { className: "faint" }, schemas.type(schema)), el("div", {}, description ?? ""))));
    body.append(el("h3", {}, "In the path"), el("table", {}, el("tbody", {}, ...rows)));
  }
  for (const [type, { schema }] of Object.entries(operation.requestBody?.content ?? {})) {
    body.append(el("h3", {}, "Body, ", el("code", {}, type)));
    body.append(schemas.fields(schema) ?? el("p", {}, schema?.description ?? schemas.type(schema)));
  }
  return el("details", { id: operation.id },
    el("summary", {}, el("span", { className: "method" }, operation.method.toUpperCase()), " ",
      el("code", {}, operation.path), " ", el("span", { className: "faint" }, operation.summary ?? "")), body);
}

function showContents(operations) {
  const tags = [...new Set(operations.map(({ tags: [tag] = ["other"] }) => tag))];
  for (const tag of tags) {
    const links = operations.filter(({ tags: [own] = ["other"] }) => own === tag)
      .map(({ id, summary, path }) => el("a", { href: `#${id}` }, summary ?? path));
    $("contents").append(el("h2", {}, tag), ...links);
  }
}

function openChosen() {
  const chosen = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!chosen) return;
  chosen.open = true;
  chosen.scrollIntoView();
}

async function described(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}

/** The descriptions of the applications that are served here. */
async function beside() {
  const asked = APPLICATIONS.map((name) => described(`${name}/openapi.json`).catch(() => null));
  return (await Promise.all(asked)).filter((found) => found !== null);
}

async function start() {
  const [description, applications] = await Promise.all([described("openapi.json"), beside()]);
  const parts = [description, ...applications].map((found) =>
    ({ schemas: new Schemas(found.components), operations: operationsOf(found) }));
  $("about").append(...prose(description.info.description));
  $("operations").replaceChildren(...parts.flatMap(({ schemas, operations }) =>
    operations.map((operation) => showOperation(operation, schemas))));
  showContents(parts.flatMap(({ operations }) => operations));
  window.addEventListener("hashchange", openChosen);
  openChosen();
}

start().catch(() => {
  $("wait").textContent = "The description cannot be loaded. Check that the gateway runs, and reload this page.";
});
