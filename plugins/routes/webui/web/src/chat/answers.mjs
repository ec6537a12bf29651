// The answers that are coming, whatever becomes of the page and the connection meanwhile.
//
// As long as an answer is coming its message has `answering`:
// - `stream`: id of the stream at the server, null if it is not kept there; `event`: number of its last event that is in
//   the message; `reason`, `tokens`: what the events said about the end;
// - `began`, `first`: when it was asked for, and when its text began;
// - `beat`, `left`: when the tab that reads it was last seen, and whether that one has left.
// The tab that reads it is the conversation's `by`. When it is gone, another one, or the page loaded again, reads on.
import { Refused, ask, figures, follow, forget } from "./ask.mjs";
import { BrokeOff, objects } from "../common/sse.mjs";
import { isPicture } from "./records.mjs";
import { add, branch, coming, last, remove } from "./tree.mjs";

const SEEN_EVERY = 1000;
const GONE_AFTER = 5000;
const PAUSES = [500, 1000, 2000, 4000]; // before each try to read on after a connection broke
const GONE = new Set([404, 410]);
const COMPLETE = new Set(["stop", "tool_calls"]);

/** Return whether an answer is coming in a conversation, in whichever tab. */
export function isComing(conversation) {
  return coming(conversation) !== undefined;
}

/**
 * The answers that come into this tab.
 *
 * `shown` is told what happens: `changed(conversation)` when text came, `waits(conversation)` when the connection broke
 * and is made again, `ended(conversation, error)` when an answer is over; the error is null for one that was not refused
 * and did not break off.
 */
export class Answers {
  constructor(store, shown, { pauses = PAUSES, seenEvery = SEEN_EVERY, goneAfter = GONE_AFTER } = {}) {
    Object.assign(this, { store, shown, pauses, seenEvery, goneAfter });
    this.running = new Map(); // conversation -> Run
    this.timer = null;
  }

  /** Ask for an answer to what is shown of a conversation, or for what follows the part of one that is its last message. */
  async ask(conversation, goOn = false) {
    const asked = branch(conversation), { settings, key } = this.store;
    const format = settings.schema ? { format: "json" } : {};
    const message = goOn ? last(conversation) : add(conversation, { role: "assistant", content: "", ...format });
    message.answering = { stream: null, event: 0, began: Date.now(), beat: Date.now() };
    const run = new Run(conversation);
    this.store.keep(conversation);
    await this.read(run, async (signal) => {
      const { bytes, stream } = await ask(settings, key, asked, goOn, signal);
      if (!run.over) run.message.answering.stream = stream;
      this.store.save(conversation);
      return bytes;
    });
  }

  /** End an answer, in whichever tab it is coming. */
  stop(conversation) {
    const run = this.running.get(conversation) ?? new Run(conversation);
    const { stream } = run.message.answering;
    if (!this.running.has(conversation)) this.store.claim(conversation);
    if (stream) forget(stream, this.store.key);
    run.controller.abort();
    this.end(run, "stopped");
  }

  /** Read on what other tabs left. `loaded` when the page begins; else only what nobody has read for a while. */
  adopt(loaded = false) {
    clearTimeout(this.timer);
    let others = false;
    for (const conversation of this.store.conversations.filter(isComing)) {
      if (this.running.has(conversation)) continue;
      const { left, beat } = coming(conversation).answering;
      if ((loaded && left) || !(Date.now() - beat < this.goneAfter)) this.resume(conversation);
      else others = true;
    }
    if (others) this.timer = setTimeout(() => this.adopt(), this.goneAfter);
  }

  /** Let go of answers that another tab reads now, and end those whose conversation was removed. */
  settle() {
    for (const run of [...this.running.values()]) {
      const there = this.store.conversations.includes(run.conversation);
      if (there && run.conversation.by === this.store.tab) continue;
      const { stream } = run.message.answering;
      if (!there && stream) forget(stream, this.store.key);
      this.release(run);
    }
    this.adopt();
  }

  /** Leave the page: whoever comes next reads on. */
  leave() {
    clearTimeout(this.timer);
    for (const run of [...this.running.values()]) {
      Object.assign(run.message.answering, { beat: Date.now(), left: true });
      this.store.save(run.conversation);
      this.release(run);
    }
  }

  async resume(conversation) {
    const run = new Run(conversation), { answering } = run.message;
    this.store.claim(conversation);
    delete answering.left;
    run.resumed = true;
    if (answering.stream) await this.read(run, (signal) => this.rest(run, signal));
    else this.end(run, "lost"); // the server has nothing of it any more
  }

  /** Read an answer to its end: from what `begin` returns, and where that breaks off, from its stream. */
  async read(run, begin) {
    this.running.set(run.conversation, run);
    run.timer = setInterval(() => this.seen(run), this.seenEvery);
    this.seen(run);
    try {
      await this.readAll(run, begin);
      if (run.over) return;
      const { reason } = run.message.answering;
      this.end(run, COMPLETE.has(reason) ? null : reason === "length" ? "length" : "server");
    } catch (error) {
      if (!run.over) this.end(run, isLost(error) ? "lost" : "server", error);
    }
  }

  async readAll(run, begin) {
    for (let tries = 0; ; tries += 1) {
      try {
        const bytes = await begin(run.controller.signal);
        if (bytes === null) return; // all events are there
        for await (const { value, id } of objects(bytes)) {
          if (run.over) return;
          run.take(value, id);
          tries = 0;
          this.shown.changed(run.conversation);
        }
        return;
      } catch (error) {
        const { stream } = run.message.answering ?? {};
        if (run.over || !stream || !(error instanceof BrokeOff) || tries === this.pauses.length) throw error;
      }
      this.shown.waits(run.conversation);
      await new Promise((resolve) => { setTimeout(resolve, this.pauses[tries]); });
      if (run.over) return;
      begin = (signal) => this.rest(run, signal);
    }
  }

  rest(run, signal) {
    const { stream, event } = run.message.answering;
    return follow(stream, this.store.key, event, signal);
  }

  seen(run) {
    run.message.answering.beat = Date.now();
    this.store.save(run.conversation);
  }

  /** Write down how an answer ended (null: it is complete). One of which nothing came is none. */
  end(run, ended, error = null) {
    const { conversation, message } = run;
    this.release(run);
    if (error === null || message.answering.first) {
      message.spent = run.spent();
      message.figures = figures(message.spent);
      if (ended) message.ended = ended;
      else delete message.ended;
    } // else nothing was added: what the message was before counts
    delete message.answering;
    if (isEmpty(message)) remove(conversation, message);
    this.store.save(conversation);
    this.shown.ended(conversation, error);
  }

  release(run) {
    run.over = true;
    clearInterval(run.timer);
    run.controller.abort();
    this.running.delete(run.conversation);
  }
}

/** One answer that is read. `over` once somebody else reads it, or nobody. */
class Run {
  constructor(conversation) {
    this.conversation = conversation;
    this.message = coming(conversation);
    this.before = this.message.spent ?? {};
    this.controller = new AbortController();
    this.timer = null;
    this.over = false;
    this.resumed = false; // it was begun by another page
  }

  /** Put one event into the message. */
  take({ usage, choices }, id) {
    const { message } = this, { answering } = message;
    if (/^\d+$/.test(id)) answering.event = Number(id);
    answering.tokens = usage?.completion_tokens ?? answering.tokens;
    for (const { finish_reason, delta } of choices) {
      answering.reason = finish_reason ?? answering.reason;
      const reasoning = delta.reasoning || delta.reasoning_content || "";
      if (!delta.content && !reasoning && !delta.tool_calls && !delta.images) continue;
      answering.first ??= Date.now();
      message.content += delta.content || "";
      if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
      for (const call of delta.tool_calls ?? []) this.takeCall(call);
      for (const { image_url } of delta.images ?? []) {
        if (isPicture(image_url?.url)) message.images = [...(message.images ?? []), image_url.url];
      }
    }
  }

  /** Put a part of a tool call into the message. */
  takeCall({ index, id, function: said }) {
    const calls = (this.message.calls ??= []);
    while (calls.length <= index) calls.push({ id: "", name: "", arguments: "" });
    const call = calls[index];
    call.id ||= id ?? "";
    call.name += said?.name ?? "";
    call.arguments += said?.arguments ?? "";
  }

  /** Return tokens and times, with those of the part that it goes on from; nobody measured what came in between. */
  spent() {
    const { began, first, tokens } = this.message.answering, { before } = this, end = Date.now();
    return {
      ...(tokens === undefined ? {} : { tokens: (before.tokens ?? 0) + tokens }),
      wait: before.wait ?? ((first ?? end) - began) / 1000,
      ...(this.resumed ? {} : { seconds: (before.seconds ?? 0) + (end - (first ?? end)) / 1000 }),
    };
  }
}

/** Return whether nothing came of an answer. */
function isEmpty({ content, reasoning, calls, images }) {
  return !content && !reasoning && !calls?.length && !images?.length;
}

/** Return whether nobody has the rest of an answer any more. */
function isLost(error) {
  return error instanceof BrokeOff || (error instanceof Refused && GONE.has(error.status));
}
