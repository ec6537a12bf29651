// Requests to the server.
import { connected } from "../common/sse.mjs";
import { chosen } from "./sampling.mjs";

/** An answer other than success. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function headers(key) {
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

async function checked(response) {
  if (response.ok) return response;
  let message = `The server answered ${response.status}.`;
  try {
    message = (await response.json()).error.message || message;
  } catch { /* no JSON: the number has to do */ }
  throw new Refused(response.status, message);
}

/** Return the names of the models. */
export async function models(key) {
  const response = await checked(await connected(fetch("v1/models", { headers: headers(key) })));
  return (await response.json()).data.map((model) => model.id);
}

/** Return the sampling parameters of a request that names none, as the server settles them. */
export async function defaults(key) {
  const response = await checked(await connected(fetch("v1/chat/completions/render", {
    method: "POST",
    headers: headers(key),
    body: JSON.stringify({ messages: [{ role: "user", content: "?" }] }),
  })));
  return (await response.json()).sampling_params;
}

/** Return the body of a request; `goOn` asks for what follows the last message, which is a part of an answer. */
export function body(settings, messages, goOn = false) {
  const found = { messages: messages.map(plain), stream: true, stream_options: { include_usage: true } };
  if (goOn) {
    Object.assign(found, { continue_final_message: true, add_generation_prompt: false });
    const { reasoning } = messages.at(-1);
    if (reasoning) found.messages.at(-1).reasoning_content = reasoning; // templates show by it that thinking is over
  }
  if (settings.system) found.messages.unshift({ role: "system", content: settings.system });
  if (settings.model) found.model = settings.model;
  Object.assign(found, chosen(settings));
  if (settings.schema) {
    const schema = JSON.parse(settings.schema);
    found.response_format = { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
  }
  if (settings.tools) found.tools = JSON.parse(settings.tools);
  return found;
}

/** Return a message as the server takes it. */
function plain({ role, content, calls, call }) {
  if (role === "tool") return { role, tool_call_id: call, content };
  if (!calls?.length) return { role, content };
  const made = calls.map(({ id, name, arguments: said }) => ({ id, type: "function", function: { name, arguments: said } }));
  return { role, content, tool_calls: made };
}

/** Ask for an answer; return its bytes, and the id of its stream if the server keeps it beyond the connection. */
export async function ask(settings, key, messages, goOn, signal) {
  const response = await checked(await connected(fetch("v1/chat/completions", {
    method: "POST",
    headers: { ...headers(key), "x-resumable-stream": "true" },
    body: JSON.stringify(body(settings, messages, goOn)),
    signal,
  })));
  return { bytes: response.body, stream: response.headers.get("x-stream-id") };
}

/** Return the bytes of a kept stream behind event number `after`; null when none follows. */
export async function follow(stream, key, after, signal) {
  const response = await checked(await connected(fetch(`v1/stream/${encodeURIComponent(stream)}`, {
    headers: { ...headers(key), "last-event-id": String(after) },
    signal,
  })));
  return response.status === 204 ? null : response.body;
}

/** End a kept stream and the generation behind it. */
export async function forget(stream, key) {
  try {
    await fetch(`v1/stream/${encodeURIComponent(stream)}`, { method: "DELETE", headers: headers(key) });
  } catch { /* it ends by itself when nobody reads it */ }
}

/** Return what the read-out says of an answer. */
export function figures({ tokens, wait, seconds }) {
  const said = [];
  if (tokens) said.push(`${tokens} tokens`);
  if (tokens > 1 && seconds > 0) said.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (wait !== undefined) said.push(`first after ${wait.toFixed(2)} s`);
  return said.join(" · ");
}
