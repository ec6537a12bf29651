// What a conversation is: plain data that is kept in the browser, exported and imported.
//
// {id, title, created, changed, version, by, leaf, messages: [{id, parent, role, content, ...}]}; times in milliseconds.
// `version` grows with everything that is done to a conversation, `by` is the tab that did the last of it; `leaf` and
// `parent`: see tree.mjs. A message may have
// - `reasoning`, `figures` (a read-out) and `spent` ({tokens, wait, seconds} of it, in seconds);
// - `calls` [{id, name, arguments}] of tools; a message of the role `tool` is a result, `call` the id of its call;
// - `images`, addresses of pictures that came with the answer; `format`, "json" for an answer that is held to a schema;
// - `ended`, why an answer is not complete: see NOTES in messages.mjs;
// - `answering`, while an answer is coming: see answers.mjs.

const ROLES = new Set(["user", "assistant", "tool"]);
const ENDED = new Set(["stopped", "length", "lost", "server"]);
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[\w+/]+=*$/;

/** Return a new id: of a conversation, of a message, of a tab. */
export function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
}

/** Return the title of a conversation that begins with a text. */
export function titled(text) {
  const line = text.trim().split("\n")[0];
  return line.length > 60 ? `${line.slice(0, 59)}…` : line || "Conversation";
}

/** Return whether an address is that of a picture which is all in it. */
export function isPicture(address) {
  return typeof address === "string" && PICTURE.test(address);
}

/** Return the conversation in untrusted data, with nothing in it but what it should have; null if there is none. */
export function conversation(data) {
  if (!data || typeof data !== "object" || !Array.isArray(data.messages)) return null;
  const messages = linked(data.messages
    .filter((message) => ROLES.has(message?.role) && typeof message.content === "string").map(message));
  if (!messages.length) return null;
  return {
    id: typeof data.id === "string" ? data.id : newId(),
    title: typeof data.title === "string" ? data.title.slice(0, 200) : titled(messages[0].content),
    created: Number(data.created) || Date.now(),
    changed: Number(data.changed) || 0,
    version: Number(data.version) || 0,
    by: typeof data.by === "string" ? data.by : "",
    leaf: messages.some(({ id }) => id === data.leaf) ? data.leaf : messages.at(-1).id,
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

/**
 * Return messages that make a tree: each one's parent stands before it. Earlier versions of this page kept no ids: then
 * one message follows the other, under ids that are the same in every tab.
 */
function linked(messages) {
  const seen = new Set();
  messages.forEach((message, index) => {
    const before = messages[index - 1]?.id ?? null;
    if (typeof message.id !== "string" || seen.has(message.id)) message.id = `m${index}`;
    if (message.parent !== null && !seen.has(message.parent)) message.parent = before;
    seen.add(message.id);
  });
  return messages;
}

function message(data) {
  const { id, parent, role, content, reasoning, figures, spent, ended, answering, calls, call, images, format } = data;
  return {
    id,
    parent,
    role,
    content,
    ...(typeof reasoning === "string" ? { reasoning } : {}),
    ...(typeof figures === "string" ? { figures } : {}),
    ...(spent && typeof spent === "object" ? { spent: numbers(spent, ["tokens", "wait", "seconds"]) } : {}),
    ...(Array.isArray(calls) ? { calls: calls.filter(isCall).map(plainCall) } : {}),
    ...(typeof call === "string" ? { call } : {}),
    ...(Array.isArray(images) ? { images: images.filter(isPicture) } : {}),
    ...(format === "json" ? { format } : {}),
    ...(ENDED.has(ended) ? { ended } : {}),
    ...(answering && typeof answering === "object" ? { answering: answeringOf(answering) } : {}),
  };
}

function isCall(call) {
  return ["id", "name", "arguments"].every((name) => typeof call?.[name] === "string");
}

function plainCall(call) {
  return { id: call.id, name: call.name, arguments: call.arguments };
}

function answeringOf(data) {
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
