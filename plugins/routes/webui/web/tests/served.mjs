// The page on a real server, whose address is the argument: an answer over a reload, cut, continued and stopped.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Page } from "../src/chat/page.mjs";
import { objects } from "../src/common/sse.mjs";
import { FakeProse, FakeStorage, FakeWindow } from "./page.mjs";

const PAGE = readFileSync(new URL("../src/index.html", import.meta.url), "utf-8");
const server = process.argv[2], local = new FakeStorage(), session = new FakeStorage();
const requests = [], streams = [];
const direct = globalThis.fetch;
let view, page;

globalThis.document = new FakeWindow(PAGE).document;
globalThis.fetch = async (path, request) => {
  const body = request.body && { ...JSON.parse(request.body), ignore_eos: true }; // answers as long as they may be
  requests.push({ path, body, headers: request.headers });
  const response = await direct(`${server}/${path}`, { ...request, ...(body ? { body: JSON.stringify(body) } : {}) });
  if (response.headers.get("x-stream-id") && body) streams.push(response.headers.get("x-stream-id"));
  return response;
};

async function open() {
  await view?.close();
  view = new FakeWindow(PAGE, local, session);
  page = new Page(view, { prose: FakeProse });
  await page.open();
}

async function until(what) {
  for (let turns = 0; !what(); turns += 1) {
    assert.ok(turns < 6000, `not within time: ${what}`);
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }
}

const $ = (id) => view.document.getElementById(id);
const answer = () => page.current.messages[1];
const ended = () => $("stop").hidden;
const note = () => [...$("log").all()].findLast(({ className }) => className === "note").textContent;

async function all(stream) {
  let text = "";
  const response = await direct(`${server}/v1/stream/${stream}`);
  for await (const { value } of objects(response.body)) text += value.choices[0]?.delta.content ?? "";
  return text;
}

await open();
page.store.set({ ...page.store.settings, max_tokens: "200", temperature: "0" }, "");
$("prompt").value = "Count from one to one hundred.";
$("composer").fire("submit");
await until(() => answer()?.content.length > 20);
const before = answer().content;
assert.ok(answer().answering);
await open(); // while it is coming
assert.ok(!ended());
await until(ended);
const first = answer().content;
assert.ok(Number(requests.find(({ path }) => path.startsWith("v1/stream/")).headers["last-event-id"]) > 0);
assert.ok(first.startsWith(before) && first.length > before.length);
assert.equal(first, await all(streams[0]));
assert.equal(answer().spent.tokens, 200);
assert.equal(note(), "Cut: the limit of tokens was reached.");

$("log").find("button", "Continue").click();
await until(() => answer().content.length > first.length + 20);
assert.equal(requests.at(-1).body.messages.at(-1).content, first);
await $("stop").click();
assert.ok(ended() && answer().content.startsWith(first));
assert.equal(note(), "Stopped: you ended the answer here.");
await view.close();
let status = 0;
while (status !== 404) ({ status } = await direct(`${server}/v1/stream/${streams[1]}?after=99999`)); // 400: it is there
console.log("served");
