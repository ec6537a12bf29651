// One request to the server.
import { objects } from "./sse.mjs";

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
  const response = await checked(await fetch("v1/models", { headers: headers(key) }));
  return (await response.json()).data.map((model) => model.id);
}

/** Return the body of a request. */
export function body(settings, messages) {
  const found = {
    messages: messages.map(({ role, content }) => ({ role, content })),
    stream: true,
    stream_options: { include_usage: true },
  };
  if (settings.system) found.messages.unshift({ role: "system", content: settings.system });
  if (settings.model) found.model = settings.model;
  for (const name of ["temperature", "max_tokens"]) {
    const value = Number(settings[name]);
    if (settings[name] !== "" && settings[name] !== undefined && Number.isFinite(value)) found[name] = value;
  }
  return found;
}

/** Ask for an answer and tell `onDelta({content, reasoning})` what is new; return reason, tokens and times. */
export async function ask(settings, key, messages, onDelta, signal) {
  const began = performance.now();
  const request = { method: "POST", headers: headers(key), body: JSON.stringify(body(settings, messages)), signal };
  const response = await checked(await fetch("v1/chat/completions", request));
  let first = null, tokens = null, reason = null;
  for await (const chunk of objects(response.body)) {
    tokens = chunk.usage?.completion_tokens ?? tokens;
    for (const choice of chunk.choices) {
      reason = choice.finish_reason ?? reason;
      const { content, reasoning, reasoning_content } = choice.delta;
      const delta = { content: content || "", reasoning: reasoning || reasoning_content || "" };
      if (!delta.content && !delta.reasoning) continue;
      first ??= performance.now();
      onDelta(delta);
    }
  }
  const end = performance.now();
  return { reason, tokens, wait: ((first ?? end) - began) / 1000, seconds: (end - (first ?? end)) / 1000 };
}

/** Return what the read-out says of an answer. */
export function figures({ tokens, wait, seconds, reason }) {
  const said = [];
  if (tokens) said.push(`${tokens} tokens`);
  if (tokens > 1 && seconds > 0) said.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (wait !== undefined) said.push(`first after ${wait.toFixed(2)} s`);
  if (reason === "length") said.push("cut at the limit");
  return said.join(" · ");
}
