// The messages of the conversation that is shown, and what of them is read out.
import { el } from "../common/dom.mjs";
import { Shown } from "./messages.mjs";
import { branch } from "./tree.mjs";

const DRAWN_EVERY = 60; // milliseconds; drawing each token would take longer than making it
const NEAR_END = 120; // pixels
const MOST_SAID = 40; // blocks that are kept for screen readers

/** The log in `node`. `spoken` is a live region: it gets an answer block by block, as each is complete. */
export class Log {
  constructor(node, spoken, prose) {
    Object.assign(this, { node, spoken, prose });
    this.id = null; // of the conversation
    this.known = new Map(); // id of a message -> Shown
    this.messages = [];
    this.timer = null;
    this.drawn = 0;
  }

  /** Show a conversation. `actionsOf(message)` returns what can be done with a message. */
  draw(conversation, actionsOf) {
    clearTimeout(this.timer);
    this.timer = null;
    this.messages = branch(conversation);
    const before = conversation.id === this.id ? this.known : new Map();
    this.id = conversation.id;
    this.known = new Map(this.messages.map((message) => [message.id, before.get(message.id) ?? this.make(message)]));
    for (const message of this.messages) {
      this.of(message).update(message);
      this.of(message).finish(message.answering ? null : actionsOf(message));
    }
    const nodes = [...this.known.values()].map(({ node }) => node);
    this.node.replaceChildren(...(nodes.length ? nodes : [el("p", { className: "empty" }, "Ask something.")]));
    this.node.setAttribute("aria-busy", String(this.messages.some(({ answering }) => answering)));
    this.toEnd(true);
  }

  /** Show soon what has come of the answer; of one that another tab reads the messages are other objects. */
  changed(conversation) {
    this.messages = branch(conversation);
    this.timer ??= setTimeout(() => this.drawAnswer(), Math.max(0, this.drawn + DRAWN_EVERY - Date.now()));
  }

  /** Read out what has not been yet of the last message, as it is complete. */
  readOut() {
    const last = this.of(this.messages.at(-1));
    if (last) this.say(last);
  }

  /** Forget what was read out: another answer begins. */
  hush() {
    this.spoken.replaceChildren();
  }

  /** Put the focus on the button of a message, by its label, or where that cannot be pressed, beside it. */
  focus(message, ...labels) {
    const buttons = [...(this.of(message)?.actions.children ?? [])];
    const found = labels.map((label) => buttons.find((one) => one.getAttribute("aria-label") === label && !one.disabled));
    found.find((one) => one)?.focus();
  }

  of(message) {
    return this.known.get(message?.id);
  }

  make(message) {
    const shown = new Shown(message, this.prose, () => this.toEnd(false));
    if (!message.answering) shown.unsaid(); // it was there before
    return shown;
  }

  drawAnswer() {
    this.timer = null;
    this.drawn = Date.now();
    const message = this.messages.at(-1), last = this.of(message);
    if (!last) return;
    last.update(message);
    this.say(last);
    this.toEnd(false);
  }

  say(shown) {
    this.spoken.append(...shown.unsaid().map((text) => el("p", {}, text)));
    while (this.spoken.children.length > MOST_SAID) this.spoken.children[0].remove();
  }

  toEnd(always) {
    const { node } = this;
    if (always || node.scrollHeight - node.scrollTop - node.clientHeight < NEAR_END) node.scrollTop = node.scrollHeight;
  }
}
