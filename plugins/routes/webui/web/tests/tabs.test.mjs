// Several tabs over one storage, pages that are loaded again, connections that break: no word is lost or comes twice.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, test } from "node:test";
import { Page } from "../src/chat/page.mjs";
import { Store } from "../src/chat/store.mjs";
import { FakeProse, FakeServer, FakeStorage, FakeWindow } from "./page.mjs";

const PAGE = readFileSync(new URL("../src/index.html", import.meta.url), "utf-8");
const QUICK = { prose: FakeProse, pauses: [10, 10], seenEvery: 20, goneAfter: 200 };
let server, local, tabs;

/** A tab; loaded `again`, it is what comes in the place of another one. */
async function open(again = null) {
  await again?.close();
  const view = new FakeWindow(PAGE, local, again?.session ?? new FakeStorage());
  const page = new Page(view, QUICK), $ = (id) => view.document.getElementById(id);
  const told = [], say = page.say.bind(page);
  page.say = (text) => { told.push(text); say(text); };
  const tab = {
    page, view, $, told, session: view.sessionStorage,
    close: () => view.close(),
    said: () => $("log").children.map((one) => one.all && [...one.all()].find(({ className }) => className === "content")?.textContent),
    note: () => [...$("log").all()].findLast(({ className }) => className === "note")?.textContent,
    titles: () => [...$("conversations").all()].filter((one) => one.className === "open").map((one) => one.textContent),
    press: (label) => { $("log").find("button", label).click(); },
    type: (text) => { $("prompt").value = text; $("composer").fire("submit"); },
  };
  tabs.push(tab);
  await page.open();
  return tab;
}

/** Wait until something is so. */
async function until(what, said = what) {
  for (let turns = 0; !what(); turns += 1) {
    assert.ok(turns < 500, `not within time: ${said}`);
    await new Promise((resolve) => { setTimeout(resolve, 10); });
  }
}

const calm = () => new Promise((resolve) => { setTimeout(resolve, 90); });
const asked = () => server.requests.filter(({ path }) => path === "v1/chat/completions");
const read = () => server.requests.filter(({ path, method }) => path.startsWith("v1/stream/") && method === "GET");

/** Ask in a tab, and let these parts of the answer come. */
async function begin(tab, text, ...parts) {
  const before = asked().length;
  tab.type(text);
  await until(() => asked().length > before && server.last);
  server.last.say(...parts);
  await until(() => tab.said().at(-1) === parts.join("").trim());
}

beforeEach(() => {
  tabs = [];
  local = new FakeStorage();
  server = new FakeServer();
  globalThis.fetch = server.fetch;
  globalThis.document = new FakeWindow(PAGE).document; // only makes elements
});

afterEach(() => Promise.all(tabs.map((tab) => tab.close())));

// -- tabs -------------------------------------------------------------------------------------------------------------

test("two tabs that write keep both conversations", async () => {
  const one = await open(), two = await open();
  one.type("in one");
  two.type("in two"); // neither has heard of the other
  await until(() => asked().length === 2);
  for (const stream of server.streams.values()) {
    stream.say("yes");
    stream.finish();
  }
  for (const tab of [one, two]) await until(() => tab.titles().length === 2);
  assert.deepEqual([one.said(), two.said()], [["in one", "yes"], ["in two", "yes"]]);
  assert.deepEqual((await open()).titles().sort(), ["in one", "in two"]);
});

test("two tabs that write one conversation at once keep both ways on", async () => {
  const one = await open();
  await begin(one, "first", "yes");
  server.last.finish();
  await until(() => one.note() === "" && one.$("send").hidden === false);
  const two = await open();
  assert.deepEqual(two.said(), ["first", "yes"]);
  // Both write in the same turn, before either can hear of it: the second one reads the storage as it was before.
  const kept = { ...local.kept };
  one.type("from one");
  const mine = { ...local.kept };
  local.kept = kept;
  two.type("from two");
  local.kept = { ...mine, ...local.kept };
  for (const tab of [one, two]) await until(() => tab.titles().length === 2);
  for (const stream of server.streams.values()) {
    if (stream.finished) continue;
    stream.say("ok");
    stream.finish();
  }
  await until(() => [one, two].every((tab) => tab.said().length === 4 && tab.$("stop").hidden));
  assert.deepEqual([one.said(), two.said()], [["first", "yes", "from one", "ok"], ["first", "yes", "from two", "ok"]]);
  const store = new Store(local.in(null), null);
  assert.deepEqual(store.conversations.map(({ messages }) => messages[2].content).sort(), ["from one", "from two"]);
});

test("a tab shows what comes in another one, can end it, and does not ask meanwhile", async () => {
  const one = await open(), two = await open();
  await begin(one, "hello", "a ");
  await until(() => two.titles().length === 1);
  await two.$("conversations").find("button", "hello").click();
  server.last.say("b");
  await until(() => two.said()[1] === "a b");
  two.type("too early");
  assert.equal(asked().length, 1);
  assert.equal(two.$("prompt").value, "too early");
  const stream = server.last;
  await two.$("stop").click();
  assert.ok(!server.streams.has(stream.id));
  await until(() => !one.$("send").hidden);
  for (const tab of [one, two]) {
    assert.deepEqual([tab.said()[1], tab.note()], ["a b", "Stopped: you ended the answer here."]);
  }
});

test("what is deleted in one tab is gone in the other, with its answer", async () => {
  const one = await open();
  await begin(one, "hello", "a ");
  const two = await open(), stream = server.last;
  await two.$("conversations").find("button", "✕").click();
  await until(() => one.titles().length === 0);
  assert.match(one.$("status").textContent, /deleted in another tab/);
  await calm();
  assert.ok(!server.streams.has(stream.id));
  assert.deepEqual(Object.keys(local.kept).filter((name) => name.startsWith("core.conversation")), []);
});

test("settings of one tab are those of the other", async () => {
  const one = await open(), two = await open();
  one.$("temperature").value = "0.5";
  await one.$("settings").close();
  await until(() => two.page.store.settings.temperature === "0.5");
});

test("the list that earlier versions kept becomes entries, and stays where there is no room", () => {
  const old = ["a", "b"].map((id) => ({ id, title: id, created: 5, messages: [{ role: "user", content: id }] }));
  local.setItem("core.conversations", JSON.stringify(old));
  assert.deepEqual(new Store(local.in(null), null).conversations.map(({ id }) => id), ["a", "b"]);
  assert.deepEqual(new Store(local.in(null), null).conversations.map(({ id }) => id), ["a", "b"]);
  assert.equal(local.getItem("core.conversations"), null);
  const small = new FakeStorage();
  small.setItem("core.conversations", JSON.stringify([{ ...old[0], messages: [{ role: "user", content: "x".repeat(500) }] }]));
  small.limit = 600;
  small.setItem = function setItem(name, value) { if (name !== "core.conversations") throw new Error("full"); this.kept[name] = value; };
  assert.equal(new Store(small, null).conversations.length, 1);
  assert.equal(new Store(small, null).conversations[0].messages[0].content.length, 500);
});

// -- pages that are loaded again --------------------------------------------------------------------------------------

test("an answer goes on where it was after the page was loaded again", async () => {
  let tab = await open();
  await begin(tab, "hello", "one ", "two ");
  await calm();
  const stream = server.last;
  tab = await open(tab);
  stream.say("three ");
  await until(() => tab.said()[1] === "one two three");
  assert.equal(tab.$("stop").hidden, false);
  assert.equal(read()[0].headers["last-event-id"], "2");
  stream.finish();
  await until(() => tab.$("stop").hidden);
  assert.deepEqual(tab.said(), ["hello", "one two three"]);
  assert.match(tab.$("status").textContent, /^Answered\. 5 tokens · first after [\d.]+ s$/); // its speed is not known
  assert.equal(tab.note(), "");
  assert.equal(asked().length, 1);
});

test("an answer that ended while the page was away is complete", async () => {
  let tab = await open();
  await begin(tab, "hello", "one ");
  await tab.close();
  server.last.say("two");
  server.last.finish();
  tab = await open(tab);
  await until(() => tab.said()[1] === "one two" && tab.$("stop").hidden);
  assert.equal(tab.note(), "");
});

test("the page shows the conversation that it showed before", async () => {
  let tab = await open();
  await begin(tab, "first", "1");
  server.last.finish();
  await tab.$("new").click();
  await begin(tab, "second", "2");
  server.last.finish();
  await until(() => tab.$("stop").hidden);
  await tab.$("conversations").find("button", "first").click();
  tab = await open(tab);
  assert.deepEqual(tab.said(), ["first", "1"]);
});

test("an open tab reads on when the one that read is gone", async () => {
  const one = await open();
  await begin(one, "hello", "one ");
  const two = await open();
  await until(() => two.said()[1] === "one");
  await one.close();
  server.last.say("two");
  await until(() => two.said()[1] === "one two");
  server.last.finish();
  await until(() => two.$("stop").hidden);
});

test("a page that comes back from the browser's cache reads on", async () => {
  const tab = await open();
  await begin(tab, "hello", "one ");
  await tab.view.fire("pagehide");
  server.last.say("two");
  await tab.view.fire("pageshow", { persisted: true });
  await until(() => tab.said()[1] === "one two");
});

for (const keeps of [true, false]) {
  test(`an answer that is gone at the server (${keeps ? "time ran out" : "no streams are kept"}) says so`, async () => {
    server.keeps = keeps;
    let tab = await open();
    await begin(tab, "hello", "one ");
    await tab.close();
    server.streams.clear();
    tab = await open(tab);
    await until(() => tab.$("stop").hidden);
    assert.equal(tab.note(), "Cut: the connection to the server was lost.");
    assert.deepEqual(tab.said(), ["hello", "one"]);
    assert.ok(tab.$("log").find("button", "Continue"));
  });
}

// -- answers that are cut ---------------------------------------------------------------------------------------------

test("an answer that is as long as it may be says so, and goes on", async () => {
  const tab = await open();
  await begin(tab, "hello", "one ");
  server.last.finish("length");
  await until(() => tab.$("stop").hidden);
  assert.equal(tab.note(), "Cut: the limit of tokens was reached.");
  tab.press("Continue");
  await until(() => asked().length === 2);
  const { body } = asked()[1];
  assert.deepEqual(body.messages, [{ role: "user", content: "hello" }, { role: "assistant", content: "one " }]);
  assert.deepEqual([body.continue_final_message, body.add_generation_prompt], [true, false]);
  server.last.say("two");
  await until(() => tab.said()[1] === "one two");
  server.last.finish();
  await until(() => tab.$("stop").hidden);
  assert.deepEqual([tab.note(), tab.said()], ["", ["hello", "one two"]]);
  assert.match(tab.$("status").textContent, /^Answered\. 10 tokens/);
  assert.ok(!tab.$("log").find("button", "Continue"));
});

test("stop ends the answer at the server too, and it can go on", async () => {
  const tab = await open();
  await begin(tab, "hello", "one ");
  const stream = server.last;
  await tab.$("stop").click();
  assert.ok(!server.streams.has(stream.id));
  assert.equal(tab.note(), "Stopped: you ended the answer here.");
  (await open(tab)).press("Continue");
  await until(() => asked().length === 2);
  assert.equal(asked()[1].body.continue_final_message, true);
});

test("a connection that breaks is made again, and nothing comes twice", async () => {
  const tab = await open();
  await begin(tab, "hello", "one ");
  for (const cut of ["break", "cut"]) {
    const before = read().length;
    server.last[cut]();
    server.last.say(`${cut} `);
    await until(() => read().length > before);
  }
  await until(() => tab.said()[1] === "one break cut");
  assert.equal(tab.$("status").textContent, "The model is answering.");
  server.last.finish();
  await until(() => tab.$("stop").hidden);
  assert.equal(tab.note(), "");
});

test("a server that is gone is told, and what came stays", async () => {
  const tab = await open();
  await begin(tab, "hello", "one ");
  server.down = true;
  server.last.break();
  await until(() => tab.$("stop").hidden);
  assert.ok(tab.told.includes("The connection broke. It is made again…"));
  assert.deepEqual([tab.said(), tab.note()], [["hello", "one"], "Cut: the connection to the server was lost."]);
  tab.press("Continue"); // still gone: what was there stays as it was
  await until(() => tab.$("alert").textContent === "The server does not answer.");
  assert.deepEqual([tab.said(), tab.note()], [["hello", "one"], "Cut: the connection to the server was lost."]);
  assert.ok(tab.$("log").find("button", "Continue"));
});

for (const [name, end] of [
  ["finish reason", (stream) => stream.finish("abort")],
  ["error event", (stream) => stream.send({ error: { message: "The engine died." } })],
]) {
  test(`a server that ends the answer early: ${name}`, async () => {
    const tab = await open();
    await begin(tab, "hello", "one ");
    end(server.last);
    await until(() => tab.$("stop").hidden);
    assert.equal(tab.note(), "Cut: the server ended the answer early.");
    assert.ok(tab.$("log").find("button", "Continue"));
  });
}

test("an answer that never came leaves no empty message after the page was loaded again", async () => {
  let tab = await open();
  server.keeps = false;
  tab.type("hello");
  await until(() => asked().length === 1);
  tab = await open(tab);
  assert.deepEqual(tab.said(), ["hello"]);
  assert.equal(tab.$("status").textContent, "No answer came.");
  assert.ok(tab.$("log").find("button", "Regenerate"));
});
