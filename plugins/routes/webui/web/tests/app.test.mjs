// The whole page, with a server that answers what the test says.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { Page } from "../src/chat/page.mjs";
import { FakeProse, FakeStorage, FakeWindow, stream } from "./page.mjs";

const STATIC = new URL("../src/", import.meta.url);
const PAGE = readFileSync(new URL("index.html", STATIC), "utf-8");
const requests = [];
let page, view, local, session, reply;

const chunk = (delta, more = {}) => `data: ${JSON.stringify({ choices: [{ delta, finish_reason: null, ...more }] })}\n\n`;
const END = 'data: {"choices":[],"usage":{"completion_tokens":5}}\n\ndata: [DONE]\n\n';
const ANSWER = [chunk({ role: "assistant", content: "" }), chunk({ reasoning: "hm" }), chunk({ content: "**Hi** <b>" })];
ANSWER.push(chunk({}, { finish_reason: "stop" }), END);
const json = (status, value) => new Response(JSON.stringify(value), { status });
const $ = (id) => page.getElementById(id);
const settle = () => new Promise((resolve) => { setTimeout(resolve, 80); });

async function open() {
  await view?.close();
  view = new FakeWindow(PAGE, local, session);
  page = view.document;
  Object.assign(globalThis, {
    document: page,
    fetch: async (path, request) => {
      requests.push({ path, ...request, body: request.body && JSON.parse(request.body) });
      if (path === "v1/models" && !reply.locked) return json(200, { data: [{ id: "tiny" }, { id: "other" }] });
      return reply(request);
    },
  });
  await new Page(view, { prose: FakeProse }).open();
  await settle();
}

async function type(text) {
  $("prompt").value = text;
  await $("composer").fire("submit");
  await settle();
}

beforeEach(async () => {
  local = new FakeStorage();
  session = new FakeStorage();
  requests.length = 0;
  reply = async () => new Response(stream(...ANSWER));
  await open();
});

afterEach(() => view.close());

test("an answer comes, is shown safely, counted, and kept", async () => {
  assert.equal($("title").textContent, "tiny");
  await type("Hello <i>you</i>");
  const [user, model] = $("log").children;
  assert.equal(user.find("div").textContent, "");
  assert.ok(user.textContent.includes("Hello <i>you</i>"));
  assert.ok(model.textContent.includes("**Hi** <b>")); // what becomes of Markdown is tested in a browser
  assert.equal(model.find("summary").textContent, "Thought");
  assert.ok(model.find("details").textContent.includes("hm"));
  assert.match(model.find("span").textContent, /^5 tokens/);
  assert.match($("status").textContent, /^Answered\. 5 tokens/);
  assert.equal($("send").hidden, false);
  const { path, body, headers } = requests.at(-1);
  assert.equal(path, "v1/chat/completions");
  assert.deepEqual(body.messages, [{ role: "user", content: "Hello <i>you</i>" }]);
  assert.equal(body.model, "tiny");
  assert.equal(headers.authorization, undefined);
  await open();
  assert.equal($("log").children.length, 2);
  assert.equal($("conversations").find("button").textContent, "Hello <i>you</i>");
});

test("regenerate and edit make branches, and arrows lead between them", async () => {
  const said = () => $("log").children.map((one) => one.find("div", undefined, "content").textContent);
  const answer = (text) => { reply = async () => new Response(stream(chunk({ content: text }), chunk({}, { finish_reason: "stop" }), END)); };
  const versions = () => [...$("log").all()].filter(({ className }) => className === "version").map(({ textContent }) => textContent);
  const press = async (at, text) => { await $("log").children.at(at).find("button", text).click(); await settle(); };
  answer("1");
  await type("one");
  await type("two");
  answer("2");
  await press(-1, "Regenerate");
  assert.deepEqual(requests.at(-1).body.messages.map(({ content }) => content), ["one", "1", "two"]);
  assert.deepEqual([said(), versions()], [["one", "1", "two", "2"], ["2 of 2"]]);
  await press(-1, "‹");
  assert.deepEqual([said(), versions()], [["one", "1", "two", "1"], ["1 of 2"]]);
  await press(0, "Edit");
  assert.equal($("prompt").value, "one");
  await type("uno");
  assert.deepEqual(requests.at(-1).body.messages, [{ role: "user", content: "uno" }]);
  assert.deepEqual([said(), versions()], [["uno", "2"], ["2 of 2"]]);
  await open();
  await press(0, "‹");
  assert.deepEqual([said(), versions()], [["one", "1", "two", "2"], ["1 of 2", "2 of 2"]]); // the newest behind it
  reply = async () => json(503, { error: { message: "full" } });
  await press(-1, "Regenerate");
  assert.deepEqual(said(), ["one", "1", "two", "2"]); // no answer came: the one before is shown
});

test("calls of tools are shown, and their results sent", async () => {
  const call = (index, part) => chunk({ tool_calls: [{ index, ...part }] });
  reply = async () => new Response(stream(
    call(0, { id: "c1", function: { name: "weather", arguments: '{"city":' } }),
    call(0, { function: { arguments: ' "Oslo"}' } }),
    chunk({}, { finish_reason: "tool_calls" }), END,
  ));
  await type("how is it?");
  const answer = $("log").children[1];
  assert.equal(answer.find("details", undefined, "call").find("summary").textContent, "Calls weather");
  assert.equal(answer.find("code").textContent, '{\n  "city": "Oslo"\n}');
  const form = answer.find("form");
  form.find("textarea").value = "rain";
  reply = async () => new Response(stream(...ANSWER));
  await form.fire("submit");
  await settle();
  assert.deepEqual(requests.at(-1).body.messages.slice(-1), [{ role: "tool", tool_call_id: "c1", content: "rain" }]);
  assert.equal($("log").children.length, 4);
});

test("a schema that is none is not sent, and pictures are shown", async () => {
  await $("open-settings").click();
  $("schema").value = "{";
  await $("schema").fire("input");
  assert.match($("schema-wrong").textContent, /not JSON/);
  let prevented = false;
  await $("settings-form").fire("submit", { preventDefault: () => { prevented = true; } });
  assert.ok(prevented);
  $("schema").value = '{"type": "object"}';
  await $("settings").close();
  await settle();
  const image = (url) => chunk({ images: [{ image_url: { url } }] });
  reply = async () => new Response(stream(image("data:image/png;base64,AA=="), image("https://x.y/z.png"), chunk({ content: "{}" }), END));
  await type("hi");
  assert.equal(requests.findLast(({ path }) => path === "v1/chat/completions").body.response_format.type, "json_schema");
  const answer = $("log").children[1];
  assert.deepEqual([...answer.all()].filter(({ tag }) => tag === "img").map(({ src }) => src), ["data:image/png;base64,AA=="]);
  assert.equal(answer.find("div", undefined, "content").textContent, "```json\n{}\n```");
});

test("the server's defaults are said, and taken where a field is empty", async () => {
  reply = async () => json(200, { sampling_params: { temperature: 0.2, top_k: 50 } });
  await open();
  assert.equal(requests.at(-1).path, "v1/chat/completions/render");
  assert.equal($("temperature-default").textContent, "server: 0.2");
  $("temperature").value = "1";
  await $("reset").click();
  await $("settings").close();
  assert.equal(JSON.parse(local.kept["core.settings"]).temperature, "");
});

test("stop keeps what has come", async () => {
  reply = async ({ signal }) => new Response(new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode(chunk({ content: "part" })));
      signal.addEventListener("abort", () => controller.error(Object.assign(new Error("x"), { name: "AbortError" })));
    },
  }));
  $("prompt").value = "hi";
  const sending = $("composer").fire("submit");
  await settle();
  assert.equal($("send").hidden, true);
  await page.fire("keydown", { key: "Escape" });
  await sending;
  await settle();
  assert.equal($("status").textContent, "Stopped: you ended the answer here.");
  assert.ok($("log").children[1].textContent.includes("part"));
  assert.equal($("send").hidden, false);
});

test("a server with a key is asked with one", async () => {
  reply = async ({ headers }) => (headers.authorization === "Bearer k" ? json(200, { data: [{ id: "tiny" }] })
    : json(401, { error: { message: "A key is needed" } }));
  reply.locked = true;
  await open();
  assert.equal($("alert").textContent, "A key is needed");
  assert.ok($("settings").open);
  $("key").value = "k";
  await $("settings").close();
  await settle();
  assert.equal($("alert").hidden, true);
  assert.equal($("title").textContent, "tiny");
  assert.ok(!JSON.stringify(local.kept).includes('"k"'));
});

test("a failure is told, and leaves no empty answer", async () => {
  reply = async () => json(503, { error: { message: "Too many requests are waiting." } });
  await type("hi");
  assert.equal($("alert").textContent, "Too many requests are waiting.");
  assert.equal($("log").children.length, 1);
  reply = async () => new Response(stream(...ANSWER));
  await $("log").children[0].find("button", "Regenerate").click();
  await settle();
  assert.equal($("log").children.length, 2);
  assert.deepEqual(requests.at(-1).body.messages, [{ role: "user", content: "hi" }]);
  reply = async () => new Response("<html>", { status: 502 });
  await type("again");
  assert.equal($("alert").textContent, "The server answered 502.");
});

test("several conversations, settings and the theme", async () => {
  await type("first");
  await $("new").click();
  await type("second");
  const titles = () => [...$("conversations").all()].filter((one) => one.className === "open").map((one) => one.textContent);
  assert.deepEqual(titles(), ["second", "first"]);
  $("system").value = "be kind";
  $("temperature").value = "0.5";
  $("model").value = "other";
  await $("settings").close();
  await type("third");
  const { body } = requests.findLast(({ path }) => path === "v1/chat/completions");
  assert.deepEqual([body.messages[0].role, body.temperature, body.model], ["system", 0.5, "other"]);
  await $("conversations").find("button", "✕").click();
  assert.deepEqual(titles(), ["first"]);
  await $("theme").click();
  assert.equal(page.documentElement.dataset.theme, "dark");
  $("file").files = [{ text: async () => "nonsense" }];
  await $("file").fire("change");
  assert.equal($("alert").textContent, "The file is not JSON.");
});
