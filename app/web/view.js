// One turn of the conversation on the page. All text goes in as text nodes, so nothing in it can become markup.

import { el } from "./dom.js";

const STAGES = ["guardrail", "retriever", "assembler", "generator", "postprocessor"];
let panels = 0;

/** The question and the answer that grows under it. */
export class TurnView {
  constructor(question) {
    this.text = el("div", { className: "text", dir: "auto" });
    this.wait = el("p", { className: "wait" }, el("span", { className: "dots", "aria-hidden": "true" }), "Working…");
    this.answer = el("div", { className: "answer", "aria-busy": "true" }, this.text, this.wait);
    this.root = el("article", { className: "turn" },
      el("h3", { className: "hidden" }, "Question"),
      el("div", { className: "asked", dir: "auto" }, question),
      el("h3", { className: "hidden" }, "Answer"),
      this.answer);
    this.stream = document.createTextNode("");
    this.text.append(this.stream);
  }

  append(text) {
    this.wait.remove();
    this.text.classList.add("growing");
    this.stream.appendData(text);
  }

  /** Close the turn. `times` are `{ firstToken, total }` in milliseconds as the browser saw them. */
  finish({ report, usage, finish, times }) {
    this.#settle();
    const sources = new Sources(report);
    markSentences(this.text, this.stream.data, report?.citations ?? [], sources);
    if (!this.stream.data) this.text.append(el("span", { className: "faint" }, "(empty answer)"));
    for (const sentence of remarks(report, finish)) this.note(sentence);
    if (sources.size) this.answer.append(sources.root);
    this.answer.append(facts(report, usage, times));
  }

  stopped() {
    this.#settle();
    this.note("Stopped. The gateway was told to drop the rest.");
  }

  /** Show an error as a sentence, with a button that asks again. */
  fail(error, onRetry) {
    this.#settle();
    const blocked = error.code === "content_filter";
    const where = [error.stage && `stage ${error.stage}`, error.code, error.status ? `status ${error.status}` : null];
    const retry = el("button", { type: "button", className: "quiet", onclick: onRetry }, "Ask again");
    this.answer.append(el("div", { className: blocked ? "callout blocked" : "callout", role: "alert" },
      el("strong", {}, blocked ? "The guardrail blocked this." : "That did not work."),
      el("p", { dir: "auto" }, error.message),
      error.retryAfter && el("p", {}, `The gateway asks to wait ${error.retryAfter} seconds.`),
      el("p", { className: "faint" }, where.filter(Boolean).join(" · ")),
      blocked ? null : retry));
  }

  note(sentence) {
    this.answer.append(el("p", { className: "note" }, sentence));
  }

  #settle() {
    this.wait.remove();
    this.text.classList.remove("growing");
    this.answer.setAttribute("aria-busy", "false");
  }
}

/** The passages behind an answer: a row of numbered chips, and a panel that shows the one that is open. */
class Sources {
  #buttons = [];
  #open = null;

  constructor(report) {
    this.passages = collectPassages(report);
    this.size = this.passages.size;
    this.panel = el("div", { className: "passage", hidden: true, id: `passage-${++panels}`, role: "region", "aria-label": "Passage" });
    const chips = [...this.passages.values()].map((passage) => el("li", {}, this.#chip(passage)));
    this.root = el("section", { className: "sources", "aria-label": "Sources" },
      el("h4", {}, "Sources"), el("ul", { className: "chips" }, ...chips), this.panel);
  }

  #chip(passage) {
    const label = `Passage ${passage.mark}, ${passage.source}${passage.cited ? "" : ", given to the model but not cited"}`;
    return this.#button(passage.mark, passage.cited ? "chip" : "chip uncited", label,
      el("b", {}, String(passage.mark)), el("span", {}, passage.source));
  }

  /** A small button for the running text that opens passage `mark`. */
  mark(mark) {
    return this.#button(mark, "mark", `Open passage ${mark}`, String(mark));
  }

  #button(mark, className, label, ...children) {
    const button = el("button", {
      type: "button", className, title: label, onclick: () => this.toggle(mark),
      "aria-label": label, "aria-expanded": "false", "aria-controls": this.panel.id, "data-mark": mark,
    }, ...children);
    this.#buttons.push(button);
    return button;
  }

  toggle(mark) {
    this.#open = this.#open === mark ? null : mark;
    for (const button of this.#buttons) {
      button.setAttribute("aria-expanded", String(button.dataset.mark === String(this.#open)));
    }
    this.panel.hidden = this.#open === null;
    if (this.#open === null) return;
    this.panel.replaceChildren(...this.#describe(this.passages.get(mark)));
    this.panel.scrollIntoView({ block: "nearest" });
  }

  #describe({ mark, source, collection, score, text }) {
    const close = el("button", { type: "button", className: "quiet", onclick: () => this.toggle(mark) }, "Close");
    const fact = (name, value) => el("span", {}, el("span", { className: "faint" }, `${name} `), value);
    return [
      el("div", { className: "head" }, el("b", {}, `[${mark}]`), fact("source", source), fact("collection", collection),
        fact("score", decimals(score, 3)), close),
      el("blockquote", { dir: "auto" }, text ?? "The text of this passage was not sent along."),
    ];
  }
}

/** Passages that have a mark, by mark: the contexts' own facts, completed by the citations'. */
function collectPassages(report) {
  const found = new Map();
  for (const context of report?.contexts ?? []) {
    if (context.mark) found.set(context.mark, { ...context, source: context.source || context.id, cited: false });
  }
  for (const citation of report?.citations ?? []) {
    found.set(citation.mark, { ...citation, source: citation.source || citation.id, ...found.get(citation.mark), cited: true });
  }
  return new Map([...found].sort(([left], [right]) => left - right));
}

/** Write the answer anew with cited sentences marked. The gateway's offsets count characters, not UTF-16 units. */
function markSentences(node, answer, citations, sources) {
  const characters = Array.from(answer);
  const slice = (start, end) => characters.slice(start, end).join("");
  const parts = [];
  let cursor = 0;
  for (const { start, end, marks } of sentences(citations)) {
    if (start < cursor) continue;
    const text = slice(start, end);
    const unwritten = marks.filter((mark) => !text.includes(`[${mark}]`)).map((mark) => sources.mark(mark));
    parts.push(...withMarks(slice(cursor, start), sources), el("span", { className: "cited" }, ...withMarks(text, sources)), ...unwritten);
    cursor = end;
  }
  parts.push(...withMarks(slice(cursor), sources));
  node.replaceChildren(...parts);
}

/** Citations joined by the stretch of text they belong to, in order of the text. */
function sentences(citations) {
  const spans = new Map();
  for (const { mark, start, end } of citations) {
    const span = spans.get(`${start}-${end}`) ?? { start, end, marks: [] };
    if (!span.marks.includes(mark)) span.marks.push(mark);
    spans.set(`${start}-${end}`, span);
  }
  return [...spans.values()].sort((left, right) => left.start - right.start);
}

/** Text with each "[n]" that names a passage replaced by a button. */
function withMarks(text, sources) {
  return text.split(/(\[\d{1,3}\])/).filter(Boolean).map((part) => {
    const mark = /^\[\d+\]$/.test(part) ? Number(part.slice(1, -1)) : 0;
    return sources.passages.has(mark) ? sources.mark(mark) : document.createTextNode(part);
  });
}

/** Sentences about what the reader should know beside the answer. */
function remarks(report, finish) {
  const notes = (report?.guardrail ?? []).map(describeVerdict);
  const flags = report?.flags ?? {};
  if (flags.without_context) notes.push("Answered without passages: the collection holds nothing that fits.");
  if (flags.question_truncated) notes.push("The question was longer than the retriever reads; its end was left out of the search.");
  if (finish === "length") notes.push("The answer was cut at the token limit.");
  if (finish === "content_filter" && !report?.guardrail?.length) notes.push("The guardrail ended the answer.");
  if (report?.json && report.json.status !== "valid") {
    notes.push(`The answer's JSON is ${report.json.status}${report.json.path ? ` at ${report.json.path}` : ""}.`);
  }
  const invented = new Set((report?.unsupported_numbers ?? []).map(({ number }) => number));
  if (invented.size) notes.push(`Numbers that stand in no passage: ${[...invented].join(", ")}.`);
  return notes.filter(Boolean);
}

function describeVerdict({ action, categories, direction, failed_open: failedOpen }) {
  const what = { input: "the question", passage: "a retrieved passage", output: "the answer" }[direction] ?? "the text";
  const why = Object.entries(categories ?? {}).map(([name, count]) => (count > 1 ? `${name} ×${count}` : name)).join(", ");
  const verb = { flag: "flagged", redact: "redacted part of", block: direction === "output" ? "ended" : "left out" }[action];
  if (verb) return `The guardrail ${verb} ${what}${why ? ` (${why})` : ""}.`;
  return failedOpen ? "A guardrail rule could not be evaluated, and the policy let the text pass." : null;
}

/** Confidence, grounding, guardrail and tokens in one line; the stages' times under it. */
function facts(report, usage, times) {
  const tags = [["confidence", share(report?.confidence)], ["grounding", share(report?.grounding)]];
  const actions = (report?.guardrail ?? []).map((note) => note.action);
  const strictest = ["block", "redact", "flag"].find((action) => actions.includes(action));
  if (report) tags.push(["guardrail", { block: "blocked", redact: "redacted", flag: "flagged" }[strictest] ?? "passed"]);
  if (report?.json) tags.push(["JSON", report.json.status]);
  if (report?.variant) tags.push(["model", report.variant.model]);
  if (report?.variant?.name) tags.push(["variant", report.variant.name]);
  if (usage) tags.push(["tokens", `${usage.prompt_tokens} in, ${usage.completion_tokens} out`]);
  return el("details", { className: "facts", open: true },
    el("summary", {}, el("span", { className: "tags" }, ...tags.filter(([, value]) => value !== null).map(([name, value]) =>
      el("span", { className: "tag", "data-tag": name }, el("span", { className: "faint" }, `${name} `), value)))),
    bars(report?.stages ?? {}, times));
}

/** One bar per stage on one scale, then the two times that a person feels, in place of the gateway's own of that name. */
function bars(stages, { firstToken, total }) {
  const known = STAGES.filter((name) => name in stages);
  const others = Object.keys(stages).filter((name) => ![...STAGES, "first_token", "total"].includes(name));
  const rows = [...known, ...others].map((name) => [name, stages[name], "stage"]);
  if (firstToken !== null) rows.push(["first token", firstToken, "felt"]);
  rows.push(["total", total, "felt"]);
  const longest = Math.max(...rows.map(([, ms]) => ms), 1);
  return el("dl", { className: "bars", "aria-label": "Stage times" }, ...rows.map(([name, ms, kind]) => {
    const fill = el("i");
    fill.style.setProperty("width", `${(100 * ms) / longest}%`);
    return el("div", { className: kind, "data-stage": name }, el("dt", {}, name),
      el("dd", {}, el("span", { className: "track", "aria-hidden": "true" }, fill), el("span", { className: "ms" }, `${milliseconds(ms)} ms`)));
  }));
}

function milliseconds(value) {
  return new Intl.NumberFormat("en", { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
}

function decimals(value, digits) {
  return typeof value === "number" ? value.toFixed(digits) : "not known";
}

function share(value) {
  return typeof value === "number" ? `${Math.round(value * 100)} %` : null;
}
