// One message on the page.
import { button, copy, el } from "../common/dom.mjs";

const NAMES = { user: "You", assistant: "Model" };

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
 * `prose` is the class that shows Markdown (`Prose`).
 */
export class Shown {
  constructor(message, prose) {
    this.message = message;
    this.thought = el("div", { className: "thought" });
    this.summary = el("summary", {}, "Thinking");
    this.reasoning = el("details", { hidden: true }, this.summary, this.thought);
    this.content = el("div", { className: "content" });
    this.note = el("p", { className: "note", hidden: true });
    this.actions = el("div", { className: "actions" });
    this.node = el("article", { className: message.role, "aria-label": NAMES[message.role] },
      el("h2", {}, NAMES[message.role]), this.reasoning, this.content, this.note, this.actions);
    this.thoughts = new prose(this.thought);
    this.answer = new prose(this.content, { extra: addCopy });
    this.update();
  }

  /** Show the message as it is now; another tab that reads the answer writes another one. */
  update(message = this.message) {
    this.message = message;
    const { role, content, reasoning } = this.message;
    this.reasoning.hidden = !reasoning;
    const coming = this.message.answering !== undefined;
    if (reasoning) this.thoughts.update(reasoning, !coming || content !== "");
    this.summary.textContent = content ? "Thought" : "Thinking…";
    if (role === "user") this.content.textContent = content; // what was typed is shown as it was typed
    else this.answer.update(content, !coming);
  }

  /** Say how the answer ended. `act` has `goOn`, `again` and `edit`, where they make sense. */
  finish(act) {
    this.note.textContent = NOTES[this.message.ended] ?? "";
    this.note.hidden = !this.message.ended;
    const copying = button("Copy", "Copy this message", () => copy(this.message.content, copying));
    this.actions.replaceChildren(
      ...(act.goOn ? [button("Continue", "Go on with this answer where it ends", act.goOn)] : []),
      copying,
      ...(act.again ? [button("Regenerate", "Ask for another answer", act.again)] : []),
      ...(act.edit ? [button("Edit", "Change this message and ask again", act.edit)] : []),
      ...(this.message.figures ? [el("span", { className: "figures" }, this.message.figures)] : []),
    );
  }
}

function addCopy(pre, text) {
  const copying = button("Copy", "Copy this code", () => copy(text, copying));
  copying.className = "copy";
  pre.append(copying);
}
