// The page: conversations, the one that is shown, and what can be done with it.
import { Answers, isComing } from "./answers.mjs";
import { Keyboard } from "./keyboard.mjs";
import { Log } from "./log.mjs";
import { NOTES } from "./messages.mjs";
import { Settings } from "./settings.mjs";
import { Sidebar } from "./sidebar.mjs";
import { Store } from "./store.mjs";
import { add, choose, last, leaveOut, versions } from "./tree.mjs";

function storage(view, name) {
  try {
    return view[name];
  } catch {
    return null; // forbidden by the browser's settings
  }
}

/** Return what has to be shown anew when it changes. */
function stateOf(conversation) {
  const { id, version, leaf, messages } = conversation;
  return JSON.stringify([id, version, leaf, messages.length, isComing(conversation)]);
}

/** The page in a window. `prose` shows Markdown (see `Shown`), the other options are those of `Answers`. */
export class Page {
  constructor(view, { prose, ...options }) {
    this.view = view;
    this.$ = (id) => view.document.getElementById(id);
    this.store = new Store(storage(view, "localStorage"), storage(view, "sessionStorage"));
    this.answers = new Answers(this.store, this, options);
    this.settings = new Settings(view, this.store, (text) => this.warn(text));
    this.sidebar = new Sidebar(this);
    this.keyboard = new Keyboard(this);
    this.log = new Log(this.$("log"), this.$("spoken"), prose);
    this.current = this.store.conversations.find(({ id }) => id === this.store.shown) ?? this.newest();
    this.editing = null; // the message that is being changed
    this.waiting = false; // for a connection to an answer that is shown
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
    on("stop", "click", () => this.stop());
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
    this.sidebar.toggle(false);
    this.log.hush();
    this.draw();
    this.$("prompt").focus();
  }

  /** Show everything anew. */
  draw() {
    this.sidebar.draw();
    this.log.draw(this.current, (message) => this.actionsOf(message));
    const busy = isComing(this.current);
    this.$("send").hidden = busy;
    this.$("stop").hidden = !busy;
    this.view.document.title = this.current.title || "core";
  }

  actionsOf(message) {
    const { current } = this, { role, content, ended, calls } = message;
    if (isComing(current)) return {};
    const all = versions(current, message), index = all.indexOf(message), isLast = message === last(current);
    const turn = (to) => this.turn(all[to], to < index ? "Previous version" : "Next version");
    const act = all.length > 1 ? { versions: { index, count: all.length, choose: turn } } : {};
    if (role === "user") { // one at the end had no answer
      return { ...act, edit: () => this.edit(message), ...(isLast ? { again: () => this.again(null) } : {}) };
    }
    if (role === "tool" || !isLast) return act;
    return {
      ...act,
      again: () => this.again(message),
      ...(ended && content ? { goOn: () => this.goOn() } : {}),
      ...(calls?.length ? { results: (found) => this.giveResults(found) } : {}),
    };
  }

  // -- what is told ---------------------------------------------------------------------------------------------------

  changed(conversation) {
    if (conversation !== this.current) return;
    if (this.waiting) this.say("The model is answering.");
    this.waiting = false;
    this.log.changed(conversation);
  }

  waits(conversation) {
    this.waiting = conversation === this.current;
    if (this.waiting) this.say("The connection broke. It is made again…");
  }

  ended(conversation, error) {
    if (this.store.full) this.warn("The browser's storage is full: export and delete conversations.");
    if (conversation === this.current) {
      const { role, ended, figures } = last(conversation) ?? {};
      if (role !== "assistant") this.say(error ? "" : "No answer came.");
      else this.say(ended ? NOTES[ended] : `Answered. ${figures ?? ""}`);
    }
    if (error) this.settings.failed(error);
    if (conversation === this.current) this.draw();
    else this.sidebar.draw();
    if (conversation === this.current) this.log.readOut();
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
      this.sidebar.draw();
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

  /** Show another version of a message, with what follows it. */
  turn(message, label) {
    if (!message || !this.mayAsk()) return;
    choose(this.current, message);
    this.store.keep(this.current);
    this.draw();
    const all = versions(this.current, message);
    this.say(`Version ${all.indexOf(message) + 1} of ${all.length}.`);
    this.log.focus(message, label, "Previous version", "Next version");
  }

  edit(message) {
    this.editing = message;
    this.$("prompt").value = message.content;
    this.$("prompt").focus();
    this.say("Sent again, this becomes another version of the message. Esc leaves it as it was.");
  }

  /** Ask again: beside an answer, or where there is none, behind the last message. */
  again(answer) {
    if (!this.mayAsk()) return;
    if (answer) leaveOut(this.current, answer);
    this.$("prompt").focus();
    return this.answer();
  }

  goOn() {
    if (!this.mayAsk()) return;
    this.$("prompt").focus();
    return this.answer(true);
  }

  giveResults(found) {
    if (!this.mayAsk()) return;
    for (const { call, content } of found) add(this.current, { role: "tool", call, content });
    this.$("prompt").focus();
    return this.answer();
  }

  async send() {
    const text = this.$("prompt").value.trim();
    if (!text || !this.mayAsk()) return;
    if (this.editing !== null) leaveOut(this.current, this.editing);
    this.editing = null;
    add(this.current, { role: "user", content: text });
    this.$("prompt").value = "";
    this.$("prompt").focus();
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
    this.log.hush();
    const done = this.answers.ask(this.current, goOn);
    this.draw();
    return done;
  }

  stop() {
    if (!isComing(this.current)) return;
    this.answers.stop(this.current);
    this.$("prompt").focus();
  }
}
