// The page: conversations, the one that is shown, and the answer that is coming.
import { Refused, ask, figures, models } from "./ask.mjs";
import { button, el } from "./dom.mjs";
import { Shown } from "./messages.mjs";
import { Store } from "./store.mjs";

const $ = (id) => document.getElementById(id);
const FIELDS = ["model", "system", "temperature", "max_tokens"];
const DRAWN_EVERY = 60; // milliseconds; drawing each token would take longer than making it

function storage(name) {
  try {
    return window[name];
  } catch {
    return null; // forbidden by the browser's settings
  }
}

const store = new Store(storage("localStorage"), storage("sessionStorage"));
let current = store.conversations[0] ?? store.create();
let running = null; // {controller, conversation} of the answer that is coming
let editing = null; // index of the message that is being changed

// -- what is shown ----------------------------------------------------------------------------------------------------

function say(text) {
  $("status").textContent = text;
}

function warn(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

function drawList() {
  $("conversations").replaceChildren(...store.conversations.map((one) => {
    const open = el("button", { type: "button", className: "open", onclick: () => show(one) }, one.title);
    if (one.id === current.id) open.setAttribute("aria-current", "true");
    return el("li", {}, open, button("✕", `Delete the conversation: ${one.title}`, () => remove(one)));
  }));
}

function actionsOf(index) {
  const { role } = current.messages[index];
  if (running) return {};
  const last = index === current.messages.length - 1;
  if (role === "assistant") return last ? { again: () => again(index) } : {};
  return { edit: () => edit(index), ...(last ? { again: () => again(index + 1) } : {}) }; // it had no answer
}

function drawLog() {
  const shown = current.messages.map((message) => new Shown(message));
  shown.forEach((one, index) => one.finish(actionsOf(index)));
  $("log").replaceChildren(...(shown.length ? shown.map((one) => one.node) : [el("p", { className: "empty" }, "Ask something.")]));
  document.title = current.title || "core";
  toEnd(true);
  return shown;
}

function toEnd(always) {
  const log = $("log");
  if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
}

function show(conversation) {
  current = conversation;
  editing = null;
  warn("");
  say("");
  toggleMenu(false);
  drawList();
  drawLog();
  $("prompt").focus();
}

function busy(on) {
  $("send").hidden = on;
  $("stop").hidden = !on;
  $("log").setAttribute("aria-busy", String(on));
}

// -- what can be done -------------------------------------------------------------------------------------------------

function remove(conversation) {
  if (!window.confirm(`Delete "${conversation.title}"?`)) return;
  if (running?.conversation === conversation) running.controller.abort();
  store.remove(conversation.id);
  if (current.id === conversation.id) show(store.conversations[0] ?? store.create());
  else drawList();
}

function edit(index) {
  editing = index;
  $("prompt").value = current.messages[index].content;
  $("prompt").focus();
  say("What follows this message is left out when you send it again. Esc leaves it as it was.");
}

function again(index) {
  current.messages.length = index;
  return answer();
}

async function send() {
  const text = $("prompt").value.trim();
  if (!text || running) return;
  if (editing !== null) current.messages.length = editing;
  editing = null;
  current.messages.push({ role: "user", content: text });
  $("prompt").value = "";
  await answer();
}

async function answer() {
  const conversation = current, asked = [...conversation.messages], message = { role: "assistant", content: "" };
  const controller = new AbortController();
  running = { controller, conversation };
  conversation.messages.push(message);
  store.keep(conversation);
  warn("");
  say("The model is answering.");
  busy(true);
  drawList();
  const shown = drawLog().at(-1);
  let drawn = 0, timer = null;
  const draw = () => {
    timer = null;
    drawn = Date.now();
    shown.update();
    toEnd(false);
  };
  const onDelta = ({ content, reasoning }) => {
    message.content += content;
    if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
    timer ??= setTimeout(draw, Math.max(0, drawn + DRAWN_EVERY - Date.now()));
  };
  try {
    message.figures = figures(await ask(store.settings, store.key, asked, onDelta, controller.signal));
    say(`Answered. ${message.figures}`);
  } catch (error) {
    failed(error, conversation, message);
  } finally {
    clearTimeout(timer);
    running = null;
    busy(false);
    if (store.conversations.some((one) => one.id === conversation.id)) store.keep(conversation);
    if (store.full) warn("The browser's storage is full: export and delete conversations.");
    if (current === conversation) drawLog();
    drawList();
  }
}

function failed(error, conversation, message) {
  if (!message.content && !message.reasoning) conversation.messages.pop();
  if (error.name === "AbortError") {
    say("Stopped.");
    return;
  }
  say("");
  warn(error.message);
  if (error instanceof Refused && error.status === 401) openSettings("key");
}

function stop() {
  running?.controller.abort();
}

// -- settings, files, theme -------------------------------------------------------------------------------------------

async function loadModels() {
  try {
    const names = await models(store.key);
    $("model").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    const chosen = names.includes(store.settings.model) ? store.settings.model : names[0] ?? "";
    $("model").value = chosen;
    $("title").textContent = chosen || "core";
    if (store.settings.model !== chosen) store.set({ ...store.settings, model: chosen }, store.key);
  } catch (error) {
    warn(error.message);
    if (error instanceof Refused && error.status === 401) openSettings("key");
  }
}

function openSettings(focused) {
  for (const name of FIELDS) if (name !== "model") $(name).value = store.settings[name] ?? "";
  $("key").value = store.key;
  if (!$("settings").open) $("settings").showModal();
  $(focused ?? "model").focus();
}

function closeSettings() {
  const settings = Object.fromEntries(FIELDS.map((name) => [name, $(name).value.trim()]));
  if (!settings.model) settings.model = store.settings.model ?? "";
  store.set({ ...store.settings, ...settings }, $("key").value.trim());
  warn("");
  loadModels();
  $("prompt").focus();
}

function exportAll() {
  const address = URL.createObjectURL(new Blob([store.exported()], { type: "application/json" }));
  const link = el("a", { href: address, download: "core-conversations.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

async function importAll() {
  const [file] = $("file").files;
  $("file").value = "";
  if (!file) return;
  try {
    const count = store.imported(await file.text());
    drawList();
    say(`${count} conversations were added.`);
  } catch (error) {
    warn(error.message);
  }
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

function switchTheme() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const now = store.settings.theme ?? (dark ? "dark" : "light");
  store.set({ ...store.settings, theme: now === "dark" ? "light" : "dark" }, store.key);
  setTheme(store.settings.theme);
}

function toggleMenu(open) {
  document.body.classList.toggle("menu", open);
  $("menu").setAttribute("aria-expanded", String(open));
}

// -- beginning --------------------------------------------------------------------------------------------------------

function onKey(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
}

function onEscape(event) {
  if (event.key !== "Escape" || $("settings").open) return;
  if (running) stop();
  else if (editing !== null) show(current);
  toggleMenu(false);
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("prompt").addEventListener("keydown", onKey);
document.addEventListener("keydown", onEscape);
$("stop").addEventListener("click", stop);
$("new").addEventListener("click", () => show(store.create()));
$("export").addEventListener("click", exportAll);
$("import").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", importAll);
$("open-settings").addEventListener("click", () => openSettings());
$("settings").addEventListener("close", closeSettings);
$("theme").addEventListener("click", switchTheme);
$("menu").addEventListener("click", () => toggleMenu(!document.body.classList.contains("menu")));

setTheme(store.settings.theme);
show(current);
loadModels();
