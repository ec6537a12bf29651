// The page: conversations, the one that is shown, and what can be done with it.
import { Answers, isComing } from "./answers.mjs";
import { button, el } from "../common/dom.mjs";
import { load, save } from "./files.mjs";
import { NOTES, Shown } from "./messages.mjs";
import { Settings } from "./settings.mjs";
import { Store } from "./store.mjs";

const DRAWN_EVERY = 60; // milliseconds; drawing each token would take longer than making it

function storage(view, name) {
  try {
    return view[name];
  } catch {
    return null; // forbidden by the browser's settings
  }
}

/** Return what has to be shown anew when it changes. */
function stateOf(conversation) {
  return JSON.stringify([conversation.id, conversation.version, conversation.messages.length, isComing(conversation)]);
}

/** The page in a window. `prose` shows Markdown (see `Shown`), the other options are those of `Answers`. */
export class Page {
  constructor(view, { prose, ...options }) {
    Object.assign(this, { view, prose });
    this.$ = (id) => view.document.getElementById(id);
    this.store = new Store(storage(view, "localStorage"), storage(view, "sessionStorage"));
    this.answers = new Answers(this.store, this, options);
    this.settings = new Settings(view, this.store, (text) => this.warn(text));
    this.current = this.store.conversations.find(({ id }) => id === this.store.shown) ?? this.newest();
    this.editing = null; // index of the message that is being changed
    this.shown = []; // one for each message
    this.drawn = 0;
    this.waiting = false; // for a connection to an answer that is shown
    this.timer = null;
  }

  /** Begin: show the conversation that was shown before, and read on what was coming. */
  open() {
    this.listen();
    this.settings.show();
    this.show(this.current);
    this.answers.adopt(true);
    this.draw();
    return this.settings.loadModels();
  }

  listen() {
    const { $, view } = this;
    const on = (id, event, call) => $(id).addEventListener(event, call);
    on("composer", "submit", (event) => { event.preventDefault(); return this.send(); });
    on("prompt", "keydown", (event) => this.onKey(event));
    on("stop", "click", () => this.stop());
    on("new", "click", () => this.show(this.store.create()));
    on("export", "click", () => save(this.store));
    on("import", "click", () => $("file").click());
    on("file", "change", () => this.add());
    on("menu", "click", () => this.toggleMenu(!view.document.body.classList.contains("menu")));
    view.document.addEventListener("keydown", (event) => this.onEscape(event));
    view.addEventListener("storage", (event) => this.onStorage(event));
    view.addEventListener("pagehide", () => this.answers.leave());
    view.addEventListener("pageshow", (event) => this.onShown(event));
  }

  // -- what is shown --------------------------------------------------------------------------------------------------

  say(text) {
    this.$("status").textContent = text;
  }

  warn(text) {
    this.$("alert").textContent = text;
    this.$("alert").hidden = !text;
  }

  newest() {
    return this.store.conversations[0] ?? this.store.create();
  }

  show(conversation) {
    this.current = conversation;
    this.editing = null;
    this.warn("");
    this.say("");
    this.toggleMenu(false);
    this.draw();
    this.$("prompt").focus();
  }

  /** Show everything anew. */
  draw() {
    this.drawList();
    this.drawLog();
    const coming = isComing(this.current);
    this.$("send").hidden = coming;
    this.$("stop").hidden = !coming;
    this.$("log").setAttribute("aria-busy", String(coming));
  }

  drawList() {
    this.store.shown = this.current.id;
    this.$("conversations").replaceChildren(...this.store.conversations.map((one) => {
      const open = el("button", { type: "button", className: "open", onclick: () => this.show(one) }, one.title);
      if (one.id === this.current.id) open.setAttribute("aria-current", "true");
      return el("li", {}, open, button("✕", `Delete the conversation: ${one.title}`, () => this.remove(one)));
    }));
  }

  drawLog() {
    const { messages, title } = this.current;
    this.shown = messages.map((message) => new Shown(message, this.prose));
    this.shown.forEach((one, index) => { if (!messages[index].answering) one.finish(this.actionsOf(index)); });
    const nodes = this.shown.map(({ node }) => node);
    this.$("log").replaceChildren(...(nodes.length ? nodes : [el("p", { className: "empty" }, "Ask something.")]));
    this.view.document.title = title || "core";
    this.toEnd(true);
  }

  /** Show what has come of an answer. */
  drawAnswer() {
    clearTimeout(this.timer);
    this.timer = null;
    this.drawn = Date.now();
    this.shown.at(-1)?.update(this.current.messages.at(-1));
    this.toEnd(false);
  }

  actionsOf(index) {
    const { messages } = this.current, { role, content, ended } = messages[index];
    if (isComing(this.current)) return {};
    const last = index === messages.length - 1;
    if (role === "user") { // one at the end had no answer
      return { edit: () => this.edit(index), ...(last ? { again: () => this.again(index + 1) } : {}) };
    }
    if (!last) return {};
    return { again: () => this.again(index), ...(ended && content ? { goOn: () => this.goOn() } : {}) };
  }

  toEnd(always) {
    const log = this.$("log");
    if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
  }

  toggleMenu(open) {
    this.view.document.body.classList.toggle("menu", open);
    this.$("menu").setAttribute("aria-expanded", String(open));
  }

  // -- what is told ---------------------------------------------------------------------------------------------------

  changed(conversation) {
    if (conversation !== this.current) return;
    if (this.waiting) this.say("The model is answering.");
    this.waiting = false;
    this.timer ??= setTimeout(() => this.drawAnswer(), Math.max(0, this.drawn + DRAWN_EVERY - Date.now()));
  }

  waits(conversation) {
    this.waiting = conversation === this.current;
    if (this.waiting) this.say("The connection broke. It is made again…");
  }

  ended(conversation, error) {
    if (this.store.full) this.warn("The browser's storage is full: export and delete conversations.");
    if (conversation === this.current) {
      clearTimeout(this.timer);
      this.timer = null;
      const { role, ended, figures } = conversation.messages.at(-1) ?? {};
      if (role === "user") this.say(error ? "" : "No answer came.");
      else this.say(ended ? NOTES[ended] : `Answered. ${figures ?? ""}`);
    }
    if (error) this.settings.failed(error);
    if (conversation === this.current) this.draw();
    else this.drawList();
  }

  onStorage(event) {
    const before = stateOf(this.current), listed = this.store.conversations.includes(this.current);
    this.store.heard(event);
    this.answers.settle();
    this.settings.show();
    if (listed && !this.store.conversations.includes(this.current)) {
      this.show(this.newest());
      this.say("The conversation was deleted in another tab.");
    } else if (stateOf(this.current) !== before) {
      this.editing = null;
      this.draw();
    } else {
      this.drawList();
      if (isComing(this.current)) this.changed(this.current); // as far as the other tab has read it
    }
  }

  onShown({ persisted }) {
    if (!persisted) return;
    this.store.load(); // nothing was told to a page that was set aside
    this.answers.adopt(true);
    if (!this.store.conversations.includes(this.current) && this.current.messages.length) this.show(this.newest());
    else this.draw();
  }

  // -- what can be done -----------------------------------------------------------------------------------------------

  remove(conversation) {
    if (!this.view.confirm(`Delete "${conversation.title}"?`)) return;
    this.store.remove(conversation.id);
    this.answers.settle();
    if (this.current === conversation) this.show(this.newest());
    else this.drawList();
  }

  edit(index) {
    this.editing = index;
    this.$("prompt").value = this.current.messages[index].content;
    this.$("prompt").focus();
    this.say("What follows this message is left out when you send it again. Esc leaves it as it was.");
  }

  again(index) {
    if (!this.mayAsk()) return;
    this.current.messages.length = index;
    return this.answer();
  }

  goOn() {
    if (this.mayAsk()) return this.answer(true);
  }

  async send() {
    const text = this.$("prompt").value.trim();
    if (!text || !this.mayAsk()) return;
    if (this.editing !== null) this.current.messages.length = this.editing;
    this.editing = null;
    this.current.messages.push({ role: "user", content: text });
    this.$("prompt").value = "";
    await this.answer();
  }

  /** Return whether the conversation is as it is shown; another tab may have been quicker. */
  mayAsk() {
    const { version } = this.current;
    if (this.store.refresh(this.current) && this.current.version === version) return !isComing(this.current);
    this.editing = null;
    this.draw();
    this.say("The conversation went on in another tab.");
    return false;
  }

  answer(goOn = false) {
    this.warn("");
    this.say("The model is answering.");
    const done = this.answers.ask(this.current, goOn);
    this.draw();
    return done;
  }

  stop() {
    if (isComing(this.current)) this.answers.stop(this.current);
  }

  /** Add the conversations of a file. */
  async add() {
    try {
      const count = await load(this.$("file"), this.store);
      this.drawList();
      if (count) this.say(`${count} conversations were added.`);
    } catch (error) {
      this.warn(error.message);
    }
  }

  onKey(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      return this.send();
    }
  }

  onEscape(event) {
    if (event.key !== "Escape" || this.settings.isOpen) return;
    if (isComing(this.current)) this.stop();
    else if (this.editing !== null) this.show(this.current);
    this.toggleMenu(false);
  }
}
