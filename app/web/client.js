// What the page says to the gateway, and how it reads the replies.
import { readEvents } from "./sse.js";

const HISTORY_TURNS = 6;
const HISTORY_CHARS = 16000;
const KEY_SLOT = "baton-key";

/** An error with a sentence for the reader; `code`, `stage` and `status` come from the gateway where it sent them. */
export class GatewayError extends Error {
  constructor(message, { code = null, stage = null, status = 0, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { code, stage, status, retryAfter });
  }
}

export function rememberKey(key) {
  sessionStorage.setItem(KEY_SLOT, key);
}

export function hasKey() {
  return sessionStorage.getItem(KEY_SLOT) !== null;
}

function headers(extra = {}) {
  const key = sessionStorage.getItem(KEY_SLOT);
  return key ? { ...extra, Authorization: `Bearer ${key}` } : extra;
}

/** GET a list endpoint and return its `data`. */
export async function list(path) {
  const response = await send(path, { headers: headers() });
  const body = await response.json().catch(() => null);
  if (!Array.isArray(body?.data)) throw new GatewayError(`The gateway's answer to ${path} is not a list.`);
  return body.data;
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new GatewayError("The gateway cannot be reached. Check that it runs (make run) and ask again.");
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  throw fromBody(body?.error, response.status, retryAfter);
}

function fromBody(error, status, retryAfter = null) {
  const message = error?.message || `The gateway answered with status ${status} and no explanation.`;
  return new GatewayError(message, { code: error?.code, stage: error?.stage, status, retryAfter });
}

/** The newest finished turns that fit, oldest first, as chat messages. Failed turns are left out. */
export function history(turns) {
  const messages = [];
  let room = HISTORY_CHARS;
  for (const { question, answer } of turns.slice(-HISTORY_TURNS).reverse()) {
    room -= question.length + answer.length;
    if (room < 0) break;
    messages.unshift({ role: "user", content: question }, { role: "assistant", content: answer });
  }
  return messages;
}

/** The request body: OpenAI's fields, and the gateway's own where a switch asks for them. */
export function requestBody(turns, question, { retrieval, collection, profile }) {
  const rag = retrieval ? { enabled: true, return_contexts: true } : { enabled: false };
  if (retrieval && collection) rag.collection = collection;
  const body = {
    messages: [...history(turns), { role: "user", content: question }],
    stream: true,
    stream_options: { include_usage: true },
    rag,
  };
  if (profile) body.profile = profile;
  return body;
}

/**
 * Ask, and yield `{ text }`, `{ finish }`, `{ report }` and `{ usage }` as they come.
 * Throws GatewayError for a refusal, an error event, or a stream that ends before its end mark.
 */
export async function* ask(body, signal) {
  const response = await send("v1/chat/completions", {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", Accept: "text/event-stream" }),
    body: JSON.stringify(body),
    signal,
  });
  try {
    for await (const data of readEvents(response.body)) {
      if (data === "[DONE]") return;
      yield* readChunk(data);
    }
  } catch (error) {
    if (error instanceof GatewayError || error.name === "AbortError") throw error;
    throw new GatewayError("The connection broke in the middle of the answer.");
  }
  throw new GatewayError("The stream ended before the answer was complete.");
}

function* readChunk(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new GatewayError("The gateway sent an event that is not JSON.");
  }
  if (chunk.error) throw fromBody(chunk.error, 0);
  for (const choice of chunk.choices ?? []) {
    if (choice.index) continue;
    if (choice.delta?.content) yield { text: choice.delta.content };
    if (choice.finish_reason) yield { finish: choice.finish_reason };
  }
  if (chunk.baton) yield { report: chunk.baton };
  if (chunk.usage) yield { usage: chunk.usage };
}
