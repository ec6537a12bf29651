// What a conversation is: plain data that is kept in the browser, exported and imported.
//
// {id, title, created, changed, version, by, messages: [{role, content, ...}]}; times in milliseconds. `version` grows
// with everything that is done to a conversation, `by` is the tab that did the last of it. A message may have
// - `reasoning`, `figures` (a read-out) and `spent` ({tokens, wait, seconds} of it, in seconds);
// - `ended`, why an answer is not complete: see NOTES in messages.mjs;
// - `answering`, while an answer is coming: see answers.mjs.

const ROLES = new Set(["user", "assistant"]);
const ENDED = new Set(["stopped", "length", "lost", "server"]);

/** Return a new id: of a conversation, of a tab. */
export function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
}

/** Return the title of a conversation that begins with a text. */
export function titled(text) {
  const line = text.trim().split("\n")[0];
  return line.length > 60 ? `${line.slice(0, 59)}…` : line || "Conversation";
}

/** Return the conversation in untrusted data, with nothing in it but what it should have; null if there is none. */
export function conversation(data) {
  if (!data || typeof data !== "object" || !Array.isArray(data.messages)) return null;
  const messages = data.messages
    .filter((message) => ROLES.has(message?.role) && typeof message.content === "string").map(message);
  if (!messages.length) return null;
  return {
    id: typeof data.id === "string" ? data.id : newId(),
    title: typeof data.title === "string" ? data.title.slice(0, 200) : titled(messages[0].content),
    created: Number(data.created) || Date.now(),
    changed: Number(data.changed) || 0,
    version: Number(data.version) || 0,
    by: typeof data.by === "string" ? data.by : "",
    messages,
  };
}

/** Return the conversations of an exported file. Answers that were coming broke off there. */
export function conversations(data) {
  const found = Array.isArray(data) ? data.map(conversation).filter((one) => one !== null) : [];
  for (const { messages } of found) {
    for (const message of messages.filter(({ answering }) => answering)) {
      delete message.answering;
      message.ended = "lost";
    }
  }
  return found;
}

function message({ role, content, reasoning, figures, spent, ended, answering }) {
  return {
    role,
    content,
    ...(typeof reasoning === "string" ? { reasoning } : {}),
    ...(typeof figures === "string" ? { figures } : {}),
    ...(spent && typeof spent === "object" ? { spent: numbers(spent, ["tokens", "wait", "seconds"]) } : {}),
    ...(ENDED.has(ended) ? { ended } : {}),
    ...(answering && typeof answering === "object" ? { answering: coming(answering) } : {}),
  };
}

function coming(data) {
  return {
    stream: typeof data.stream === "string" ? data.stream : null,
    event: 0,
    ...numbers(data, ["event", "tokens", "began", "first", "beat"]),
    ...(typeof data.reason === "string" ? { reason: data.reason } : {}),
    ...(data.left === true ? { left: true } : {}),
  };
}

function numbers(data, names) {
  return Object.fromEntries(names.filter((name) => Number.isFinite(data[name])).map((name) => [name, data[name]]));
}
