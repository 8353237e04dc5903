// The page: switches, the question field, and the conversation.
import { GatewayError, ask, hasKey, list, rememberKey, requestBody } from "./client.js";
import { el } from "./dom.js";
import { TurnView } from "./view.js";

const $ = (id) => document.getElementById(id);
let turns = [];
let profiles = new Map();
let running = null;

async function loadChoices() {
  const [models, collections] = await Promise.all([list("v1/models"), list("v1/collections")]);
  profiles = new Map(models.filter(({ kind }) => kind === "profile").map((profile) => [profile.id, profile]));
  const usual = [...profiles.values()].find((profile) => profile.default)?.id ?? "";
  const kept = $("profile").value;
  $("profile").replaceChildren(...[...profiles.keys()].map((id) => el("option", { value: id }, `Profile: ${id}`)));
  $("profile").value = profiles.has(kept) ? kept : usual;
  const [asProfile] = $("collection").options;
  $("collection").replaceChildren(asProfile, ...collections.map(({ name, passages }) =>
    el("option", { value: name }, `${name} (${passages} passages)`)));
  adoptProfile();
}

/** Set the switches to what the chosen profile does by itself. */
function adoptProfile() {
  const profile = profiles.get($("profile").value);
  const searched = profile?.collections ?? [];
  $("profile").title = profile?.description ?? "";
  $("health").textContent = profile?.model ?? "";
  $("collection").options[0].textContent = searched.length ? `Collection: ${searched.join(", ")}` : "Choose a collection";
  $("collection").value = "";
  $("retrieval").checked = profile?.retrieval ?? true;
  adoptRetrieval();
}

/** Retrieval needs something to search: where the profile names nothing, the first collection is picked. */
function adoptRetrieval() {
  const on = $("retrieval").checked;
  const select = $("collection");
  select.disabled = !on;
  if (on && !select.value && !profiles.get($("profile").value)?.collections?.length && select.options[1]) {
    select.value = select.options[1].value;
  }
}

async function start() {
  try {
    await loadChoices();
  } catch (error) {
    if (error.status === 401 && (await askForKey(error.message))) return start();
    $("health").textContent = error.message;
    $("health").classList.add("bad");
    return undefined;
  }
  $("health").classList.remove("bad");
  // A browser sends no key along a link, so the API's description is closed to this one.
  $("docs").hidden = hasKey();
  return undefined;
}

function settings() {
  return {
    retrieval: $("retrieval").checked,
    collection: $("collection").value,
    profile: $("profile").value,
  };
}

async function answer(question) {
  const view = new TurnView(question);
  $("welcome").hidden = true;
  for (const details of document.querySelectorAll("details.facts[open]")) details.open = false;
  keepingEnd(() => $("conversation").append(view.root), true);
  const turn = { question, answer: "" };
  const conversation = turns;
  running = new AbortController();
  showRunning(true);
  try {
    const outcome = await stream(view, turn, running.signal);
    keepingEnd(() => view.finish(outcome));
    conversation.push(turn);
  } catch (error) {
    keepingEnd(() => settle(view, turn, error));
    if (error.name === "AbortError" && turn.answer) conversation.push(turn);
  } finally {
    running = null;
    showRunning(false);
  }
}

async function stream(view, turn, signal) {
  const begun = performance.now();
  const outcome = { report: null, usage: null, finish: null, times: { firstToken: null, total: 0 } };
  for await (const event of ask(requestBody(turns, turn.question, settings()), signal)) {
    if (event.text) {
      outcome.times.firstToken ??= performance.now() - begun;
      turn.answer += event.text;
      keepingEnd(() => view.append(event.text));
    } else {
      Object.assign(outcome, event);
    }
  }
  outcome.times.total = performance.now() - begun;
  return outcome;
}

async function settle(view, turn, error) {
  if (error.name === "AbortError") {
    view.stopped();
    return;
  }
  const again = () => submit(turn.question);
  const shown = error instanceof GatewayError ? error : new GatewayError("The page met a fault of its own while reading the answer.");
  view.fail(shown, again);
  if (shown.status === 401 && (await askForKey(shown.message))) {
    view.root.remove();
    start();
    again();
  }
}

/** Ask for an API key in a dialog that exists only while it is needed. Resolves to whether one was given. */
function askForKey(reason) {
  const field = el("input", { type: "password", id: "key", autocomplete: "off", required: true, spellcheck: false });
  const cancel = el("button", { type: "button", className: "quiet" }, "Cancel");
  const form = el("form", { method: "dialog" },
    el("h2", { id: "key-title" }, "This gateway asks for a key"),
    el("p", {}, reason),
    el("label", { for: "key" }, "API key"), field,
    el("p", { className: "faint" }, "It is kept in this tab only and forgotten when you close it."),
    el("div", { className: "row" }, cancel, el("button", { className: "primary" }, "Use this key")));
  const dialog = el("dialog", { "aria-labelledby": "key-title" }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    let given = false;
    form.addEventListener("submit", () => {
      rememberKey(field.value.trim());
      given = true;
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(given);
    });
  });
}

function ready() {
  return running === null;
}

function submit(text) {
  const question = text.trim();
  if (!question || !ready()) return;
  answer(question);
}

function showRunning(yes) {
  $("send").hidden = yes;
  $("stop").hidden = !yes;
  if (!yes) $("question").focus({ preventScroll: true });
}

/** Change the page, and stay at its end if the reader was there (or `always`). */
function keepingEnd(change, always = false) {
  const page = document.scrollingElement;
  const near = page.scrollHeight - page.scrollTop - page.clientHeight < 120;
  change();
  if (near || always) page.scrollTop = page.scrollHeight;
}

function grow() {
  const field = $("question");
  field.style.setProperty("height", "auto");
  field.style.setProperty("height", `${field.scrollHeight}px`);
}

function wire() {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!ready()) return;
    submit($("question").value);
    $("question").value = "";
    grow();
  });
  $("question").addEventListener("input", grow);
  $("question").addEventListener("keydown", (event) => {
    // Enter that picks a candidate in an input method (Chinese, Japanese) belongs to the input method.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    $("composer").requestSubmit();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("retrieval").addEventListener("change", adoptRetrieval);
  $("profile").addEventListener("change", adoptProfile);
  $("new").addEventListener("click", startOver);
  for (const button of document.querySelectorAll(".examples button")) {
    button.addEventListener("click", () => submit(button.textContent));
  }
}

function startOver() {
  running?.abort();
  turns = [];
  $("conversation").replaceChildren();
  $("welcome").hidden = false;
  $("question").focus({ preventScroll: true });
}

wire();
// Not on touch screens, where it would open the keyboard over the examples.
if (matchMedia("(hover: hover)").matches) $("question").focus({ preventScroll: true });
start();
