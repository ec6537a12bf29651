// A document of a few lines: as much of the browser as the page uses.

const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

class FakeText {
  constructor(text) {
    this.textContent = String(text);
  }

  outer() {
    return escape(this.textContent);
  }
}

export class FakeElement {
  constructor(tag) {
    Object.assign(this, { tag, children: [], attributes: {}, listeners: {}, dataset: {}, hidden: false, value: "" });
    this.classList = { toggle: (name, on) => { this.menu = on; }, contains: () => Boolean(this.menu) };
    Object.assign(this, { scrollHeight: 0, scrollTop: 0, clientHeight: 0, open: false });
  }

  get textContent() {
    return this.children.map((child) => child.textContent).join("");
  }

  set textContent(text) {
    this.children = text === "" ? [] : [new FakeText(text)];
  }

  append(...nodes) {
    this.children.push(...nodes.map((node) => (typeof node === "object" ? node : new FakeText(node))));
  }

  replaceChildren(...nodes) {
    this.children = [];
    this.append(...nodes);
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  addEventListener(name, call) {
    (this.listeners[name] ??= []).push(call);
  }

  async fire(name, event = {}) {
    for (const call of this.listeners[name] ?? []) await call({ preventDefault() {}, key: "", ...event });
  }

  click() {
    return this.fire("click");
  }

  focus() {
    FakeDocument.focused = this;
  }

  showModal() {
    this.open = true;
  }

  async close() {
    this.open = false;
    await this.fire("close");
  }

  *all() {
    for (const child of this.children) {
      if (child instanceof FakeElement) {
        yield child;
        yield* child.all();
      }
    }
  }

  find(tag, text) {
    return [...this.all()].find((node) => node.tag === tag && (text === undefined || node.textContent === text));
  }

  inner() {
    return this.children.map((child) => child.outer()).join("");
  }

  outer() {
    const shown = { class: this.className, href: this.href, rel: this.rel, start: this.start, target: this.target };
    shown.language = this.dataset.language;
    const said = Object.entries(shown).filter(([, value]) => value !== undefined);
    return `<${this.tag}${said.map(([name, value]) => ` ${name}="${value}"`).join("")}>${this.inner()}</${this.tag}>`;
  }
}

export class FakeDocument extends FakeElement {
  constructor(page = "") {
    super("document");
    this.documentElement = new FakeElement("html");
    this.body = new FakeElement("body");
    this.ids = {};
    for (const [, tag, id] of page.matchAll(/<(\w+)[^>]*? id="([\w-]+)"/g)) this.ids[id] = new FakeElement(tag);
  }

  createElement(tag) {
    return new FakeElement(tag);
  }

  createTextNode(text) {
    return new FakeText(text);
  }

  getElementById(id) {
    return this.ids[id] ?? null;
  }
}

export class FakeStorage {
  constructor(limit = Infinity) {
    Object.assign(this, { kept: {}, limit });
  }

  getItem(name) {
    return this.kept[name] ?? null;
  }

  setItem(name, value) {
    if (value.length > this.limit) throw new Error("QuotaExceededError");
    this.kept[name] = value;
  }
}

/** Return a stream of bytes in these pieces. */
export function stream(...pieces) {
  const encoder = new TextEncoder();
  return new ReadableStream({
    start(controller) {
      for (const piece of pieces) controller.enqueue(typeof piece === "string" ? encoder.encode(piece) : piece);
      controller.close();
    },
  });
}
