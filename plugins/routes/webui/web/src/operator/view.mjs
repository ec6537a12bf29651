// The operator view: figures over time, choices, the log, and what can be done. Everything needs the admin key.
import * as theme from "../common/theme.mjs";
import { Actions } from "./actions.mjs";
import { Refused, Server } from "./ask.mjs";
import { History } from "./history.mjs";
import { parse, total } from "./metrics.mjs";
import { choices, facts, faults, lines } from "./tables.mjs";

const EVERY = 2000; // milliseconds between two readings
const LOG_EVERY = 2; // readings
const PLUGINS_EVERY = 15; // readings
const LOG_LINES = 300;
const KEY = "core.admin-key", SETTINGS = "core.settings";

/** The view in a window. */
export class View {
  constructor(view) {
    this.view = view;
    this.$ = (id) => view.document.getElementById(id);
    this.server = new Server(view.sessionStorage.getItem(KEY) ?? "");
    this.history = new History();
    this.actions = new Actions(this);
    this.plots = null;
    this.turn = 0;
    this.timer = null;
    this.log = [];
  }

  /** Begin: with the key of before, or the form for one. */
  open() {
    const { $, view } = this;
    theme.show(view, this.settings().theme);
    $("theme").addEventListener("click", () => this.switchTheme());
    $("key-form").addEventListener("submit", (event) => this.enter(event));
    $("forget").addEventListener("click", () => this.leave(""));
    $("level").addEventListener("change", () => this.showLog());
    view.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plots?.paint());
    view.document.addEventListener("visibilitychange", () => { if (!view.document.hidden) this.soon(); });
    return this.read();
  }

  say(text) {
    this.$("status").textContent = text;
  }

  /** Take a key, and look whether it opens the server. */
  enter(event) {
    event.preventDefault();
    this.server.key = this.$("key").value.trim();
    this.$("key").value = "";
    return this.read();
  }

  /** Forget the key, and ask for one. */
  leave(why) {
    clearTimeout(this.timer);
    this.server.key = "";
    this.view.sessionStorage.removeItem(KEY);
    this.$("operator").hidden = true;
    this.$("entrance").hidden = false;
    this.$("wrong").textContent = why;
    this.$("key").focus();
  }

  /** Read now. */
  soon() {
    if (!this.$("operator").hidden) this.read();
  }

  /** Read what the server says of itself, show it, and come again; a page that nobody looks at does not. */
  async read() {
    clearTimeout(this.timer);
    try {
      const [info, text] = await Promise.all([this.server.json("server_info"), this.server.text("metrics")]);
      await this.show(info, parse(text));
      if (this.turn % LOG_EVERY === 0) await this.readLog();
      if (this.turn % PLUGINS_EVERY === 0) await this.readPlugins();
      this.turn += 1;
      this.$("gone").hidden = true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.status === 401 || error.status === 403) {
        this.leave(this.server.key || error.status === 403 ? error.message : "");
        return;
      }
      this.$("gone").hidden = false;
      this.$("gone").textContent = error.message;
    }
    clearTimeout(this.timer);
    if (!this.view.document.hidden) this.timer = setTimeout(() => this.read(), EVERY);
  }

  async show(info, page) {
    const { $ } = this;
    if ($("operator").hidden) {
      this.view.sessionStorage.setItem(KEY, this.server.key);
      $("entrance").hidden = true;
      $("operator").hidden = false;
      $("title").focus();
    }
    this.showFacts(info, page);
    this.actions.show(info.state);
    this.history.add(Date.now() / 1000, page);
    if (!this.plots) {
      const { Plots } = await import("./plots.mjs");
      this.plots = new Plots($("plots"), this.view);
    }
    this.plots.update(this.history.columns);
  }

  showFacts({ version, model, state, engine }, page) {
    const doing = ["draining", "paused"].find((name) => state[name]) ?? (state.ready ? "ready" : "not ready");
    const refused = total(page, "core_admission_rejections_total") ?? 0;
    this.$("facts").replaceChildren(...facts([
      ["State", doing],
      ["Model", `${model.id}, up to ${model.max_model_len} tokens`],
      ["In flight", String(state.in_flight)],
      ["Finished", String(total(page, "core_request_success_total") ?? 0)],
      ["Refused", String(refused)],
      ["KV blocks", `${engine.blocks_used} of ${engine.blocks_total}`],
      ["Preemptions", String(engine.preemptions)],
      ["Engine restarts", String(state.engine_restarts)],
      ["Up for", duration(state.uptime_s)],
      ["Version", version],
    ]));
  }

  async readLog() {
    this.log = (await this.server.json(`server_log?lines=${LOG_LINES}`)).lines;
    this.showLog();
  }

  showLog() {
    const box = this.$("log"), atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.replaceChildren(...lines(this.log, this.$("level").value));
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  async readPlugins() {
    const { selections, faults: found } = await this.server.json("core/plugins");
    if (!this.$("choices").children.length) this.$("choices").replaceChildren(...choices(selections)); // they stay
    this.$("faults").replaceChildren(faults(found));
  }

  settings() {
    try {
      return JSON.parse(this.view.localStorage.getItem(SETTINGS)) ?? {};
    } catch {
      return {};
    }
  }

  switchTheme() {
    const now = this.settings();
    const settings = { ...now, theme: theme.other(this.view, now.theme) };
    try {
      this.view.localStorage.setItem(SETTINGS, JSON.stringify(settings));
    } catch { /* then it is for this page alone */ }
    theme.show(this.view, settings.theme);
    this.plots?.paint();
  }
}

/** Return seconds as a text. */
export function duration(seconds) {
  const whole = (unit) => Math.floor(seconds / unit), days = whole(86400), hours = whole(3600) % 24, minutes = whole(60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}
