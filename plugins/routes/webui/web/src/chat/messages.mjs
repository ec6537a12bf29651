// One message on the page.
import { button, copy, el } from "../common/dom.mjs";
import { indented, resultForm, shownCalls, shownResult } from "./calls.mjs";

const NAMES = { user: "You", assistant: "Model", tool: "Tool" };

/** What the reader of an answer that is not complete is told, by its `ended`. */
export const NOTES = {
  stopped: "Stopped: you ended the answer here.",
  length: "Cut: the limit of tokens was reached.",
  lost: "Cut: the connection to the server was lost.",
  server: "Cut: the server ended the answer early.",
};

/**
 * A message: `update` shows what it holds by now, `finish` adds how it ended and what can be done with it.
 *
 * `prose` is the class that shows Markdown (`Prose`); `drawn()` is called when what is seen changed later on.
 */
export class Shown {
  constructor(message, prose, drawn = () => {}) {
    this.message = message;
    this.said = 0; // finished blocks that were read out
    this.summary = el("summary", {}, "Thinking");
    this.thought = el("div", { className: "thought" });
    this.reasoning = el("details", { hidden: true }, this.summary, this.thought);
    this.content = el("div", { className: "content" });
    this.images = el("div", { className: "images" });
    this.calls = el("div", { className: "calls" });
    this.note = el("p", { className: "note", hidden: true });
    this.actions = el("div", { className: "actions" });
    this.results = el("div");
    const parts = [this.reasoning, this.content, this.images, this.calls, this.note, this.actions, this.results];
    const name = NAMES[message.role];
    this.node = el("article", { className: message.role, "aria-label": name }, el("h2", {}, name), parts);
    this.thoughts = new prose(this.thought, { drawn });
    this.answer = new prose(this.content, { extra: addCopy, drawn });
    this.update();
  }

  /** Show the message as it is now; another tab that reads the answer writes another one. */
  update(message = this.message) {
    this.message = message;
    const { role, content, reasoning, answering } = message, whole = answering === undefined;
    this.reasoning.hidden = !reasoning;
    if (reasoning) this.thoughts.update(reasoning, whole || content !== "");
    this.summary.textContent = content || whole ? "Thought" : "Thinking…";
    if (role === "user") this.content.textContent = content; // what was typed is shown as it was typed
    else if (role === "tool") this.content.replaceChildren(shownResult(content));
    else this.answer.update(this.text(whole), whole);
    this.show("images", message.images, (images) => images.map((src) => el("img", { src, alt: "A picture of the answer" })));
    this.show("calls", message.calls, shownCalls);
  }

  /** Return the Markdown of an answer: one that is held to a schema is JSON. */
  text(whole) {
    const { content, format } = this.message;
    return format === "json" && content ? `\`\`\`json\n${whole ? indented(content) : content}\n\`\`\`` : content;
  }

  /** Show a list of the message in its place, made anew when it has changed. */
  show(place, list, make) {
    const state = JSON.stringify(list ?? []);
    if (this[place].state === state) return;
    this[place].state = state;
    this[place].replaceChildren(...make(list ?? []));
  }

  /** Return the texts that have not been read out and will not change. */
  unsaid() {
    const found = this.answer.finished().slice(this.said);
    this.said += found.length;
    return found;
  }

  /**
   * Say how the answer ended, and offer what can be done: `act` has `goOn`, `again`, `edit`, `versions` and `results`
   * where they make sense, and is null while the answer is coming.
   */
  finish(act) {
    const { message } = this;
    if (act === null) {
      this.note.hidden = true;
      this.actions.replaceChildren();
      this.results.replaceChildren();
      return;
    }
    this.note.textContent = NOTES[message.ended] ?? "";
    this.note.hidden = !message.ended;
    const copying = button("Copy", "Copy this message", () => copy(message.content, copying));
    this.actions.replaceChildren(
      ...(act.versions ? versionButtons(act.versions) : []),
      ...(act.goOn ? [button("Continue", "Continue this answer where it ends", act.goOn)] : []),
      copying,
      ...(act.again ? [button("Regenerate", "Regenerate: ask for another answer", act.again)] : []),
      ...(act.edit ? [button("Edit", "Edit this message and ask again", act.edit)] : []),
      ...(message.figures ? [el("span", { className: "figures" }, message.figures)] : []),
    );
    this.results.replaceChildren(...(act.results ? [resultForm(message.calls, act.results)] : []));
  }
}

/** Return what leads to the other versions of a message: `index` of `count`, from 0, and `choose(index)`. */
function versionButtons({ index, count, choose }) {
  const before = button("‹", "Previous version", () => choose(index - 1));
  const after = button("›", "Next version", () => choose(index + 1));
  before.disabled = index === 0;
  after.disabled = index === count - 1;
  return [before, el("span", { className: "version" }, `${index + 1} of ${count}`), after];
}

function addCopy(pre, text) {
  const copying = button("Copy", "Copy this code", () => copy(text, copying));
  copying.className = "copy";
  pre.append(copying);
}
