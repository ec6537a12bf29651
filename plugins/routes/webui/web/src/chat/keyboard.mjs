// What the keyboard does. All of it needs Alt and Shift but the keys of the message field, so that nothing is typed by
// mistake. A key is known by its letter, or where Alt writes something else, as on a Mac, by its place.
import { copy, el } from "../common/dom.mjs";
import { isComing } from "./answers.mjs";
import { branch } from "./tree.mjs";

/** What is done -> its key's place on the keyboard, its name, and what it is. */
export const KEYS = {
  create: { code: "KeyN", name: "N", what: "New conversation" },
  prompt: { code: "KeyM", name: "M", what: "Go to the message field" },
  settings: { code: "KeyS", name: "S", what: "Settings" },
  again: { code: "KeyR", name: "R", what: "Regenerate the last answer" },
  edit: { code: "KeyE", name: "E", what: "Edit the last question" },
  copy: { code: "KeyC", name: "C", what: "Copy the last answer" },
  earlier: { code: "ArrowLeft", name: "←", what: "Previous version of the last answer" },
  later: { code: "ArrowRight", name: "→", what: "Next version of the last answer" },
  help: { code: "KeyK", name: "K", what: "This list" },
};

const ALWAYS = [
  ["Enter", "Send the message"],
  ["Shift + Enter", "Start a new line"],
  ["Esc", "Stop the answer, leave an edit, close what is open"],
];

/** Return which of `KEYS` an event means; undefined for any other. */
export function meant(event) {
  if (!event.altKey || !event.shiftKey || event.ctrlKey || event.metaKey) return undefined;
  const letter = /^[a-z]$/i.test(event.key) ? event.key.toUpperCase() : null;
  return Object.keys(KEYS).find((name) => (letter ? KEYS[name].name === letter : KEYS[name].code === event.code));
}

/** The keyboard of a `Page`, and the dialog that lists it. */
export class Keyboard {
  constructor(page) {
    this.page = page;
    const { $, view } = page;
    $("key-rows").append(...rows());
    $("open-keys").addEventListener("click", () => $("keys").showModal());
    $("prompt").addEventListener("keydown", (event) => this.onEnter(event));
    view.document.addEventListener("keydown", (event) => this.onKey(event));
  }

  onEnter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return undefined;
    event.preventDefault();
    return this.page.send();
  }

  onKey(event) {
    const { $, settings } = this.page;
    if (settings.isOpen || $("keys").open) return; // a dialog closes itself
    const name = meant(event);
    if (event.key === "Escape") this.leave();
    if (!name) return;
    event.preventDefault();
    this.press(name);
  }

  /** Esc: end the first of these that there is. */
  leave() {
    const { page } = this;
    if (page.sidebar.isOpen) {
      page.sidebar.toggle(false);
      page.$("menu").focus();
    } else if (isComing(page.current)) {
      page.stop();
    } else if (page.editing !== null) {
      page.$("prompt").value = "";
      page.show(page.current);
    }
  }

  /** Do what a key means; nothing where it makes no sense now. */
  press(name) {
    const { page } = this, shown = branch(page.current);
    const answer = shown.findLast(({ role }) => role === "assistant"), asked = shown.findLast(({ role }) => role === "user");
    const { again, versions } = answer ? page.actionsOf(answer) : {};
    const done = {
      create: () => page.show(page.store.create()),
      prompt: () => page.$("prompt").focus(),
      settings: () => page.settings.open(),
      help: () => page.$("keys").showModal(),
      again: () => again?.(),
      edit: () => asked && page.edit(asked),
      copy: () => answer && copy(answer.content, page.$("status")),
      earlier: () => versions?.choose(versions.index - 1),
      later: () => versions?.choose(versions.index + 1),
    };
    done[name]();
  }
}

/** Return the rows of a table of all keys. */
function rows() {
  const mine = Object.values(KEYS).map(({ name, what }) => [`Alt + Shift + ${name}`, what]);
  const named = (keys) => el("th", { scope: "row" }, el("kbd", {}, keys));
  return [...ALWAYS, ...mine].map(([keys, what]) => el("tr", {}, named(keys), el("td", {}, what)));
}
