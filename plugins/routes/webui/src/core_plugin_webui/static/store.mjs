// Conversations and settings, in the browser's storage; a browser that keeps nothing keeps them while the page is open.

const CONVERSATIONS = "core.conversations", SETTINGS = "core.settings", KEY = "core.key";
const ROLES = new Set(["user", "assistant"]);

/** Where things are kept. `local` and `session` are `Storage`s, or null. */
export class Store {
  constructor(local, session) {
    this.local = local;
    this.session = session;
    this.full = false;
    this.conversations = valid(read(local, CONVERSATIONS));
    this.settings = { ...read(local, SETTINGS) };
    this.key = session?.getItem(KEY) ?? "";
  }

  /** Return a new conversation, which is kept once it has a message. */
  create() {
    return { id: newId(), title: "", created: Date.now(), messages: [] };
  }

  /** Keep a conversation, the newest first. */
  keep(conversation) {
    if (!conversation.messages.length) return;
    conversation.title ||= titled(conversation.messages[0].content);
    this.conversations = [conversation, ...this.conversations.filter((one) => one.id !== conversation.id)];
    this.save();
  }

  /** Forget a conversation. */
  remove(id) {
    this.conversations = this.conversations.filter((one) => one.id !== id);
    this.save();
  }

  save() {
    this.full = !write(this.local, CONVERSATIONS, this.conversations);
    return !this.full;
  }

  set(settings, key) {
    this.settings = settings;
    this.key = key;
    write(this.local, SETTINGS, settings);
    try {
      this.session?.setItem(KEY, key);
    } catch { /* kept in memory */ }
  }

  /** Return everything as a text to import elsewhere. */
  exported() {
    return JSON.stringify({ format: "core-conversations", version: 1, conversations: this.conversations }, null, 1);
  }

  /** Add exported conversations, those that are here already under new names; return how many there were. */
  imported(text) {
    let data;
    try {
      data = JSON.parse(text);
    } catch {
      throw new Error("The file is not JSON.");
    }
    const found = valid(data?.conversations);
    if (!found.length) throw new Error("The file has no conversations of this page.");
    const known = new Set(this.conversations.map((one) => one.id));
    for (const one of found) if (known.has(one.id)) one.id = newId();
    this.conversations = [...found, ...this.conversations];
    this.save();
    return found.length;
  }
}

/** Return the conversations of untrusted data, with nothing in them but what they should have. */
export function valid(data) {
  if (!Array.isArray(data)) return [];
  const found = [];
  for (const one of data) {
    if (!one || typeof one !== "object" || !Array.isArray(one.messages)) continue;
    const messages = one.messages.filter((message) => ROLES.has(message?.role) && typeof message.content === "string");
    if (!messages.length) continue;
    found.push({
      id: typeof one.id === "string" ? one.id : newId(),
      title: typeof one.title === "string" ? one.title.slice(0, 200) : titled(messages[0].content),
      created: Number(one.created) || Date.now(),
      messages: messages.map(({ role, content, reasoning, figures }) => ({
        role,
        content,
        ...(typeof reasoning === "string" ? { reasoning } : {}),
        ...(typeof figures === "string" ? { figures } : {}),
      })),
    });
  }
  return found;
}

function titled(text) {
  const line = text.trim().split("\n")[0];
  return line.length > 60 ? `${line.slice(0, 59)}…` : line || "Conversation";
}

function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
}

function read(storage, name) {
  try {
    return JSON.parse(storage?.getItem(name) ?? "null");
  } catch {
    return null;
  }
}

function write(storage, name, value) {
  try {
    storage?.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
