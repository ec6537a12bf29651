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
    Object.assign(this, { scrollHeight: 0, scrollTop: 0, clientHeight: 0, open: false, disabled: false });
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

  getAttribute(name) {
    return this.attributes[name] ?? null;
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

  find(tag, text, className) {
    return [...this.all()].find((node) => node.tag === tag && (text === undefined || node.textContent === text)
      && (className === undefined || node.className === className));
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
    const made = Object.values(this.ids).flatMap((node) => [...node.all()]); // by scripts
    return this.ids[id] ?? made.find((node) => node.id === id) ?? null;
  }
}

/** A storage that several windows share: each `in(view)` is how one of them sees it, and the others are told. */
export class FakeStorage {
  constructor(limit = Infinity) {
    Object.assign(this, { kept: {}, limit, views: new Set(), here: null });
  }

  in(view) {
    this.views.add(view);
    return Object.assign(Object.create(this), { here: view });
  }

  get length() {
    return Object.keys(this.kept).length;
  }

  key(at) {
    return Object.keys(this.kept)[at] ?? null;
  }

  getItem(name) {
    return this.kept[name] ?? null;
  }

  setItem(name, value) {
    if (value.length > this.limit) throw new Error("QuotaExceededError");
    this.kept[name] = value;
    this.tell(name, value);
  }

  removeItem(name) {
    if (!(name in this.kept)) return;
    delete this.kept[name];
    this.tell(name, null);
  }

  tell(key, newValue) {
    for (const view of this.views) if (view !== this.here) setTimeout(() => view.fire("storage", { key, newValue }), 0);
  }
}

/** A window: a tab of the browser, with what the page uses of it. */
export class FakeWindow extends FakeElement {
  constructor(page, local, session) {
    super("window");
    this.document = new FakeDocument(page);
    this.localStorage = local?.in(this);
    this.sessionStorage = session;
    this.local = local;
    this.confirm = () => true;
    this.matchMedia = () => ({ matches: false });
  }

  /** Leave the page; it hears nothing any more. */
  async close() {
    await this.fire("pagehide");
    this.local?.views.delete(this);
  }
}

/** A server that answers what the test says, and keeps its streams beyond their connections unless `keeps` is false. */
export class FakeServer {
  constructor(keeps = true) {
    Object.assign(this, { keeps, streams: new Map(), requests: [], down: false, reply: null });
  }

  /** The stream that was begun last. */
  get last() {
    return [...this.streams.values()].at(-1);
  }

  fetch = async (path, request) => {
    this.requests.push({ method: "GET", path, ...request, body: request.body && JSON.parse(request.body) });
    if (this.down) throw new TypeError("fetch failed");
    if (this.reply) return this.reply(path, request);
    if (path === "v1/models") return new Response('{"data": [{"id": "tiny"}]}');
    if (path === "v1/chat/completions") return this.begin(request);
    const stream = this.streams.get(path.split("/").at(-1));
    if (!stream) return new Response('{"error": {"message": "There is no such stream."}}', { status: 404 });
    if (request.method === "DELETE") {
      this.streams.delete(stream.id);
      stream.cut();
      return new Response("{}");
    }
    return stream.response(Number(request.headers["last-event-id"]), request.signal);
  };

  begin(request) {
    const stream = new FakeStream(`stream-${this.requests.length}`, this.keeps);
    if (this.keeps) this.streams.set(stream.id, stream);
    else this.streams = new Map([[stream.id, stream]]);
    return stream.response(0, request.signal);
  }
}

class FakeStream {
  constructor(id, keeps) {
    Object.assign(this, { id, keeps, events: [], finished: false, reader: null });
  }

  response(after, signal) {
    if (this.finished && after === this.events.length) return new Response(null, { status: 204 });
    this.cut(); // a second reader takes the stream from the first
    const body = new ReadableStream({ start: (reader) => { this.reader = reader; } });
    const { reader } = this;
    signal?.addEventListener("abort", () => {
      try {
        reader.error(Object.assign(new Error("x"), { name: "AbortError" }));
      } catch { /* it was closed */ }
      if (this.reader === reader) this.reader = null;
    });
    for (const event of this.events.slice(after)) reader.enqueue(event);
    if (this.finished) this.cut();
    return new Response(body, { headers: this.keeps ? { "x-stream-id": this.id } : {} });
  }

  /** Send an event. */
  send(data) {
    const text = typeof data === "string" ? data : JSON.stringify(data);
    this.events.push(new TextEncoder().encode(`${this.keeps ? `id: ${this.events.length + 1}\n` : ""}data: ${text}\n\n`));
    this.reader?.enqueue(this.events.at(-1));
  }

  say(...texts) {
    for (const content of texts) this.send({ choices: [{ delta: { content }, finish_reason: null }] });
  }

  finish(reason = "stop") {
    this.send({ choices: [{ delta: {}, finish_reason: reason }] });
    this.send({ choices: [], usage: { completion_tokens: 5 } });
    this.send("[DONE]");
    this.finished = true;
    this.cut();
  }

  /** Close its connection. */
  cut() {
    this.reader?.close();
    this.reader = null;
  }

  /** Break its connection, as a network does. */
  break() {
    this.reader?.error(new TypeError("network error"));
    this.reader = null;
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

/** What shows Markdown, without knowing any: `Prose` needs a real document. */
export class FakeProse {
  constructor(node) {
    this.node = node;
  }

  update(text) {
    this.node.textContent = text.trim();
  }

  finished() {
    return [];
  }
}
