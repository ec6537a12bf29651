// The list of conversations, beside the one that is shown, and their way to files and back.
import { button, el } from "../common/dom.mjs";
import { load, save } from "./files.mjs";

/** The sidebar of a `Page`; on a narrow screen it is a menu. */
export class Sidebar {
  constructor(page) {
    this.page = page;
    const { $, store } = page;
    const on = (id, event, call) => $(id).addEventListener(event, call);
    on("new", "click", () => page.show(store.create()));
    on("export", "click", () => save(store));
    on("export-one", "click", () => save(store, [page.current]));
    on("import", "click", () => $("file").click());
    on("file", "change", () => this.add());
    on("menu", "click", () => this.toggle(!this.isOpen));
  }

  /** Whether the menu is open. */
  get isOpen() {
    return this.page.view.document.body.classList.contains("menu");
  }

  /** Open or close the menu. */
  toggle(open) {
    const { $, view } = this.page;
    view.document.body.classList.toggle("menu", open);
    $("menu").setAttribute("aria-expanded", String(open));
    if (open) $("new").focus();
  }

  /** Show the conversations that there are. */
  draw() {
    const { $, store, current } = this.page;
    store.shown = current.id;
    $("export-one").disabled = !current.messages.length;
    $("conversations").replaceChildren(...store.conversations.map((one) => {
      const open = el("button", { type: "button", className: "open", onclick: () => this.page.show(one) }, one.title);
      if (one.id === current.id) open.setAttribute("aria-current", "true");
      return el("li", {}, open, button("✕", `Delete the conversation: ${one.title}`, () => this.remove(one)));
    }));
  }

  remove(conversation) {
    const { page } = this;
    if (!page.view.confirm(`Delete "${conversation.title}"?`)) return;
    page.store.remove(conversation.id);
    page.answers.settle();
    if (page.current === conversation) page.show(page.newest());
    else this.draw();
  }

  /** Add the conversations of a file. */
  async add() {
    const { $, store } = this.page;
    try {
      const count = await load($("file"), store);
      this.draw();
      if (count) this.page.say(`${count} conversations were added.`);
    } catch (error) {
      this.page.warn(error.message);
    }
  }
}
