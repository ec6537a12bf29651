// Reading streams, keeping conversations, making requests.
import assert from "node:assert/strict";
import { test } from "node:test";
import { body, figures } from "../src/chat/ask.mjs";
import { meant } from "../src/chat/keyboard.mjs";
import { said } from "../src/chat/sampling.mjs";
import { conversations } from "../src/chat/records.mjs";
import { BrokeOff, events, objects } from "../src/common/sse.mjs";
import { Store } from "../src/chat/store.mjs";
import { add, branch, choose, last, leaveOut, remove, versions } from "../src/chat/tree.mjs";
import { FakeStorage, stream } from "./page.mjs";

const all = async (items) => {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
};

const TEXT = 'data: {"a": "ü😀"}\n\n: comment\nevent: error\r\ndata: one\r\ndata:two\r\n\r\nid: 7\n\ndata: [DONE]\n\n';
const EVENTS = [
  { event: "message", data: '{"a": "ü😀"}', id: "" },
  { event: "error", data: "one\ntwo", id: "" },
  { event: "message", data: "[DONE]", id: "7" },
];

test("a stream is read however it is cut", async () => {
  const bytes = new TextEncoder().encode(TEXT);
  assert.deepEqual(await all(events(stream(TEXT))), EVENTS);
  for (const size of [1, 2, 3, 7, 11]) {
    const pieces = [];
    for (let at = 0; at < bytes.length; at += size) pieces.push(bytes.slice(at, at + size));
    assert.deepEqual(await all(events(stream(...pieces))), EVENTS, String(size));
  }
  assert.deepEqual(await all(events(stream("data: without an end"))), [{ event: "message", data: "without an end", id: "" }]);
});

test("objects end with [DONE], and errors are thrown", async () => {
  const whole = 'id: 4\ndata: {"x": 1}\n\ndata: [DONE]\n\ndata: {"x": 2}\n\n';
  assert.deepEqual(await all(objects(stream(whole))), [{ value: { x: 1 }, id: "4" }]);
  const broken = 'data: {"x": 1}\n\nevent: error\ndata: {"error": {"message": "too late"}}\n\n';
  await assert.rejects(all(objects(stream(broken))), /too late/);
  for (const cut of ['data: {"x": 1}\n\n', 'data: {"x": 1}\n\ndata: {"x"']) await assert.rejects(all(objects(stream(cut))), BrokeOff);
});

test("a reader that stops lets go of the stream", async () => {
  let cancelled = false;
  const endless = new ReadableStream({
    pull(controller) { controller.enqueue(new TextEncoder().encode("data: {}\n\n")); },
    cancel() { cancelled = true; },
  });
  for await (const one of objects(endless)) if (one) break;
  assert.ok(cancelled);
});

test("a request has what is set and nothing else", () => {
  const said = [{ role: "user", content: "hi", figures: "x" }, { role: "assistant", content: "yo", reasoning: "hm" }];
  const plain = { messages: [{ role: "user", content: "hi" }, { role: "assistant", content: "yo" }] };
  const streamed = { stream: true, stream_options: { include_usage: true } };
  assert.deepEqual(body({ temperature: "", max_tokens: "" }, said), { ...plain, ...streamed });
  const set = body({ system: "be kind", temperature: "0", max_tokens: "12", model: "m", theme: "dark" }, []);
  const more = body({ system: "be kind" }, said, true);
  assert.deepEqual([more.continue_final_message, more.add_generation_prompt], [true, false]);
  assert.deepEqual(more.messages.at(-1), { role: "assistant", content: "yo", reasoning_content: "hm" });
  assert.deepEqual(set, { messages: [{ role: "system", content: "be kind" }], ...streamed, model: "m", temperature: 0, max_tokens: 12 });
});

test("a schema, tools, calls and their results are sent as the API has them", () => {
  const calls = [{ id: "c1", name: "weather", arguments: '{"city": "Oslo"}' }];
  const messages = [{ role: "user", content: "?" }, { role: "assistant", content: "", calls }, { role: "tool", call: "c1", content: "rain" }];
  const sent = body({ schema: '{"type": "object"}', tools: '[{"type": "function"}]', top_k: "40", seed: "x" }, messages);
  const json_schema = { name: "answer", schema: { type: "object" }, strict: true };
  assert.deepEqual(sent.response_format, { type: "json_schema", json_schema });
  assert.deepEqual([sent.tools, sent.top_k, sent.seed], [[{ type: "function" }], 40, undefined]);
  assert.deepEqual(sent.messages.slice(1), [
    { role: "assistant", content: "", tool_calls: [{ id: "c1", type: "function", function: { name: "weather", arguments: '{"city": "Oslo"}' } }] },
    { role: "tool", tool_call_id: "c1", content: "rain" },
  ]);
});

test("what is said of defaults", () => {
  assert.equal(said("temperature", { temperature: 0.2 }), "server: 0.2");
  assert.equal(said("top_p", { top_p: 0.9000000357 }), "server: 0.9");
  assert.equal(said("min_p", null), "");
  assert.equal(said("max_tokens", { max_tokens: 1000 }), "as many as fit");
});

test("a key is known by its letter, or else by its place", () => {
  const press = (key, code, more = {}) => meant({ key, code, altKey: true, shiftKey: true, ...more });
  assert.equal(press("M", "Semicolon"), "prompt"); // as on a French keyboard
  assert.equal(press("˜", "KeyN"), "create"); // as on a Mac
  assert.equal(press("ArrowLeft", "ArrowLeft"), "earlier");
  assert.equal(press("?", "KeyM"), "prompt");
  assert.equal(press("Q", "KeyA"), undefined);
  for (const more of [{ ctrlKey: true }, { metaKey: true }, { shiftKey: false }]) assert.equal(press("N", "KeyN", more), undefined);
});

test("messages are a tree", () => {
  const one = { messages: [], leaf: null }, contents = () => branch(one).map(({ content }) => content).join(" ");
  const [a, b] = [add(one, { content: "a" }), add(one, { content: "b" })];
  add(one, { content: "c" });
  leaveOut(one, b);
  const other = add(one, { content: "B" });
  assert.equal(contents(), "a B");
  assert.deepEqual(versions(one, other), [b, other]);
  choose(one, b);
  assert.equal(contents(), "a b c");
  choose(one, a);
  assert.equal(contents(), "a B"); // the newest of what follows
  remove(one, other);
  assert.equal(contents(), "a b c"); // what there is in its place
  leaveOut(one, a);
  const root = add(one, { content: "A" });
  assert.deepEqual([contents(), last(one), versions(one, root).length], ["A", root, 2]);
  remove(one, root);
  assert.equal(contents(), "a b c");
});

test("figures", () => {
  assert.equal(figures({ tokens: 11, wait: 0.256, seconds: 2 }), "11 tokens · 5.0 tokens/s · first after 0.26 s");
  assert.equal(figures({ tokens: 1, wait: 1, seconds: 0 }), "1 tokens · first after 1.00 s");
});

test("conversations are kept, removed, exported and imported", () => {
  const local = new FakeStorage(), store = new Store(local, new FakeStorage());
  const one = store.create(), two = store.create();
  store.keep(one);
  assert.equal(store.conversations.length, 0); // nothing was said
  add(one, { role: "user", content: `first line ${"x".repeat(80)}\nsecond` });
  const asked = add(two, { role: "user", content: "two" });
  const call = { id: "c", name: "f", arguments: "{}" };
  add(two, { role: "assistant", content: "2", reasoning: "hm", figures: "1 tokens", calls: [call], images: ["data:image/png;base64,AA=="] });
  leaveOut(two, asked);
  add(two, { role: "user", content: "another way", format: "json" });
  store.keep(one);
  store.keep(two);
  store.keep(one);
  assert.deepEqual(new Store(local, null).conversations.map(({ id }) => id), [one.id, two.id]);
  assert.equal(one.title.length, 60);
  const elsewhere = new Store(new FakeStorage(), null);
  assert.equal(elsewhere.imported(store.exported()), 2);
  assert.deepEqual(elsewhere.conversations, store.conversations);
  assert.equal(elsewhere.imported(store.exported()), 2);
  assert.equal(new Set(elsewhere.conversations.map(({ id }) => id)).size, 4);
  store.remove(one.id);
  assert.deepEqual(new Store(local, null).conversations.map(({ id }) => id), [two.id]);
});

test("what is no conversation is left out", () => {
  const odd = [null, 5, {}, { messages: [] }, { messages: [{ role: "system", content: "x" }, { role: "user", content: 5 }] }];
  assert.deepEqual(conversations(odd), []);
  assert.deepEqual(conversations("text"), []);
  const [kept] = conversations([{ id: 7, title: {}, messages: [{ role: "user", content: "x", evil: 1, reasoning: [] }] }]);
  assert.deepEqual(kept.messages, [{ id: "m0", parent: null, role: "user", content: "x" }]);
  assert.equal(typeof kept.id, "string");
  const odder = { messages: [{ role: "user", content: "x", images: ["http://x.y/z.png", 5], calls: [{ name: "f" }], parent: "later" }] };
  const messages = [...odder.messages, { role: "assistant", content: "y", id: "m0", parent: "nowhere" }];
  const [mended] = conversations([{ messages, leaf: "gone" }]);
  assert.deepEqual([mended.messages[0].images, mended.messages[0].calls], [[], []]);
  assert.deepEqual(branch(mended).map(({ id, parent }) => [id, parent]), [["m0", null], ["m1", "m0"]]);
  const store = new Store(null, null);
  assert.throws(() => store.imported("{"), /not JSON/);
  assert.throws(() => store.imported('{"conversations": [1]}'), /no conversations/);
});

test("the key is kept for the session only, and a full storage is noticed", () => {
  const local = new FakeStorage(), session = new FakeStorage();
  new Store(local, session).set({ model: "m" }, "secret");
  assert.equal(new Store(local, session).key, "secret");
  assert.equal(new Store(local, new FakeStorage()).key, "");
  assert.ok(!JSON.stringify(local.kept).includes("secret"));
  const small = new Store(new FakeStorage(50), null), one = small.create();
  add(one, { role: "user", content: "x".repeat(99) });
  small.keep(one);
  assert.ok(small.full && small.conversations.length === 1);
  assert.deepEqual(new Store({ getItem: () => "{broken" }, null).conversations, []);
});
