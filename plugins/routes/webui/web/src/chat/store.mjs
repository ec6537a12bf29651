// Conversations and settings, in the browser's storage; a browser that keeps nothing keeps them while the page is open.
//
// Each conversation is an entry of its own, so that tabs do not write over what others keep. Of one conversation the
// higher version counts, wherever it was written; of two with the same number that of the greater tab id, and the other
// tab's goes on as a conversation of its own.
import { conversation, conversations, newId, titled } from "./records.mjs";

const ENTRY = "core.conversation.", OLD = "core.conversations", SETTINGS = "core.settings";
const KEY = "core.key", SHOWN = "core.shown";

/** Where things are kept. `local` and `session` are `Storage`s, or null. */
export class Store {
  constructor(local, session) {
    this.local = local;
    this.session = session;
    this.tab = newId();
    this.full = false;
    this.conversations = []; // the one that was changed last comes first
    this.settings = { ...parsed(get(local, SETTINGS)) };
    this.key = get(session, KEY) ?? "";
    this.unkept = new Set(); // ids that found no room
    this.written = new Set(); // ids of conversations whose version has something that was said in this tab
    this.convert();
    this.load();
  }

  /** Id of the conversation that this tab showed before it was loaded again. */
  get shown() {
    return get(this.session, SHOWN);
  }

  set shown(id) {
    put(this.session, SHOWN, id);
  }

  /** Return a new conversation, which is kept once it has a message. */
  create() {
    const now = Date.now();
    return { id: newId(), title: "", created: now, changed: now, version: 0, by: this.tab, leaf: null, messages: [] };
  }

  /** Keep what was said or done in this tab, as the newest conversation. */
  keep(one) {
    if (!one.messages.length) return;
    one.title ||= titled(one.messages[0].content);
    one.changed = Math.max(Date.now(), 1 + (this.conversations[0]?.changed ?? 0));
    if (!this.conversations.includes(one)) this.conversations.push(one);
    this.claim(one);
    this.written.add(one.id);
    this.sort();
  }

  /** Make this tab the one that goes on with a conversation. */
  claim(one) {
    one.version += 1;
    one.by = this.tab;
    this.written.delete(one.id);
    this.save(one);
  }

  /** Keep a conversation as far as it has come, unless it was removed meanwhile. */
  save(one) {
    if (!this.conversations.includes(one)) return;
    this.full = !put(this.local, ENTRY + one.id, JSON.stringify(one));
    if (this.full) this.unkept.add(one.id);
    else this.unkept.delete(one.id);
  }

  /** Forget a conversation, everywhere. */
  remove(id) {
    this.conversations = this.conversations.filter((one) => one.id !== id);
    this.written.delete(id);
    drop(this.local, ENTRY + id);
  }

  /** Take over what other tabs have done to a conversation by now; return whether it is still there. */
  refresh(one) {
    if (!this.local || !this.conversations.includes(one) || this.unkept.has(one.id)) return true;
    this.take(ENTRY + one.id, get(this.local, ENTRY + one.id));
    return this.conversations.includes(one);
  }

  /** Read what is kept again: a page that was set aside has not been told of changes. */
  load() {
    const names = new Set(entries(this.local));
    for (const name of names) this.take(name, get(this.local, name));
    if (!this.local) return;
    this.conversations = this.conversations.filter(({ id }) => names.has(ENTRY + id) || this.unkept.has(id));
  }

  /** Take over what another tab wrote: a `storage` event. */
  heard({ key, newValue }) {
    if (key === SETTINGS) this.settings = { ...parsed(newValue) };
    else if (key === null) this.load();
    else if (key.startsWith(ENTRY)) this.take(key, newValue);
  }

  take(name, text) {
    const mine = this.conversations.find(({ id }) => ENTRY + id === name);
    const theirs = conversation(parsed(text));
    if (theirs === null || ENTRY + theirs.id !== name) {
      if (mine) this.remove(mine.id);
      return;
    }
    const order = mine ? theirs.version - mine.version || Number(theirs.by > mine.by) - Number(theirs.by < mine.by) : 1;
    if (order < 0 || (mine && order === 0 && mine.by === this.tab)) {
      if (mine.by === this.tab && text !== JSON.stringify(mine)) this.save(mine); // who wrote had not heard of this one
    } else if (mine && theirs.version === mine.version && order > 0 && this.written.has(mine.id)) {
      this.written.delete(mine.id);
      mine.id = newId();
      this.conversations.push(theirs);
      this.keep(mine);
    } else if (mine) {
      Object.assign(mine, theirs);
      if (order > 0) this.written.delete(mine.id);
    } else {
      this.conversations.push(theirs);
    }
    this.sort();
  }

  sort() {
    this.conversations.sort((one, other) => other.changed - one.changed || (one.id < other.id ? -1 : 1));
  }

  set(settings, key) {
    this.settings = settings;
    this.key = key;
    put(this.local, SETTINGS, JSON.stringify(settings));
    put(this.session, KEY, key);
  }

  /** Return conversations as a text to import elsewhere. */
  exported(conversations = this.conversations) {
    return JSON.stringify({ format: "core-conversations", version: 2, conversations }, null, 1);
  }

  /** Add exported conversations, those that are here already under new names; return how many there were. */
  imported(text) {
    const data = parsed(text);
    if (data === undefined) throw new Error("The file is not JSON.");
    const found = conversations(data?.conversations);
    if (!found.length) throw new Error("The file has no conversations of this page.");
    const known = new Set(this.conversations.map((one) => one.id));
    for (const one of found) {
      if (known.has(one.id)) one.id = newId();
      this.conversations.push(one);
      this.save(one);
    }
    this.sort();
    return found.length;
  }

  /** Make entries of what earlier versions of this page kept as one list. */
  convert() {
    const found = conversations(parsed(get(this.local, OLD))).filter(({ id }) => get(this.local, ENTRY + id) === null);
    drop(this.local, OLD); // first: there may be no room for both
    const now = Date.now();
    found.forEach((one, index) => {
      one.changed ||= now - index; // the newest came first
      this.conversations.push(one);
      this.save(one);
    });
    const left = found.filter(({ id }) => this.unkept.has(id));
    if (left.length) put(this.local, OLD, JSON.stringify(left));
  }
}

function entries(storage) {
  const names = [];
  for (let at = 0; at < (storage?.length ?? 0); at += 1) names.push(storage.key(at));
  return names.filter((name) => name.startsWith(ENTRY));
}

/** Return the value of a JSON text; undefined for anything else. */
function parsed(text) {
  try {
    return JSON.parse(text ?? "null");
  } catch {
    return undefined;
  }
}

function get(storage, name) {
  try {
    return storage?.getItem(name) ?? null;
  } catch {
    return null;
  }
}

function put(storage, name, text) {
  try {
    storage?.setItem(name, text);
    return true;
  } catch {
    return false;
  }
}

function drop(storage, name) {
  try {
    storage?.removeItem(name);
  } catch { /* then it was not kept either */ }
}
