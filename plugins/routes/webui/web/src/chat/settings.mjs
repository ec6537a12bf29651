// The settings: which model, how it answers, the key, and light or dark.
import { el } from "../common/dom.mjs";
import * as theme from "../common/theme.mjs";
import { Refused, defaults, models } from "./ask.mjs";
import { inputs, said } from "./sampling.mjs";

const TEXTS = ["system", "schema", "tools"];
const JSON_TEXTS = {
  schema: (value) => value && typeof value === "object" && !Array.isArray(value) ? "" : "A JSON schema is an object.",
  tools: (value) => Array.isArray(value) ? "" : "Tools are a JSON list.",
};

/** The dialog of the settings, and what of them is seen elsewhere. `warn(text)` shows an error. */
export class Settings {
  constructor(view, store, warn) {
    Object.assign(this, { view, store, warn, defaults: null });
    this.$ = (id) => view.document.getElementById(id);
    this.sampling = inputs();
    const { $ } = this;
    $("sampling").append(...this.sampling.map(({ node }) => node));
    $("open-settings").addEventListener("click", () => this.open());
    $("settings-form").addEventListener("submit", (event) => this.submit(event));
    $("settings").addEventListener("close", () => this.close());
    $("reset").addEventListener("click", () => this.reset());
    $("theme").addEventListener("click", () => this.switchTheme());
    for (const name of Object.keys(JSON_TEXTS)) $(name).addEventListener("input", () => this.check(name));
  }

  /** Show what is set, also by another tab. */
  show() {
    const { settings } = this.store;
    this.$("title").textContent = settings.model || "core";
    theme.show(this.view, settings.theme);
    this.$("held").hidden = !settings.schema;
  }

  /** Ask the server for its models, and for what it does where a setting is empty. */
  async loadModels() {
    const { $, store } = this;
    try {
      const names = await models(store.key);
      $("model").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
      const chosen = names.includes(store.settings.model) ? store.settings.model : names[0] ?? "";
      $("model").value = chosen;
      if (store.settings.model !== chosen) store.set({ ...store.settings, model: chosen }, store.key);
      this.show();
    } catch (error) {
      this.failed(error);
      return;
    }
    this.defaults = await defaults(store.key).catch(() => null); // a model without a chat template cannot say
    this.showDefaults();
  }

  showDefaults() {
    for (const { name, said: place } of this.sampling) place.textContent = said(name, this.defaults);
  }

  /** Show an error; a server that wants a key is given one here. */
  failed(error) {
    this.warn(error.message);
    if (error instanceof Refused && error.status === 401) this.open("key");
  }

  get isOpen() {
    return this.$("settings").open;
  }

  open(focused = "model") {
    const { $, store } = this;
    for (const name of TEXTS) $(name).value = store.settings[name] ?? "";
    for (const { name, input } of this.sampling) input.value = store.settings[name] ?? "";
    for (const name of Object.keys(JSON_TEXTS)) this.check(name);
    $("key").value = store.key;
    if (!this.isOpen) $("settings").showModal();
    $(focused).focus();
  }

  /** Say what is wrong with a JSON field; return whether nothing is. */
  check(name) {
    const field = this.$(name), text = (field.value ?? "").trim();
    let wrong = "";
    try {
      if (text) wrong = JSON_TEXTS[name](JSON.parse(text));
    } catch (error) {
      wrong = `This is not JSON: ${error.message}`;
    }
    this.$(`${name}-wrong`).textContent = wrong;
    field.setAttribute("aria-invalid", String(Boolean(wrong)));
    return !wrong;
  }

  /** Close only with fields that can be sent. */
  submit(event) {
    const wrong = Object.keys(JSON_TEXTS).find((name) => !this.check(name));
    if (!wrong) return;
    event.preventDefault();
    this.$(wrong).focus();
  }

  reset() {
    for (const { input } of this.sampling) input.value = "";
    this.sampling[0].input.focus();
  }

  close() {
    const { $, store } = this;
    const settings = Object.fromEntries([...TEXTS, "model"].map((name) => [name, ($(name).value ?? "").trim()]));
    for (const { name, input } of this.sampling) settings[name] = input.value.trim();
    if (!settings.model) settings.model = store.settings.model ?? "";
    for (const name of Object.keys(JSON_TEXTS)) if (!this.check(name)) settings[name] = store.settings[name] ?? "";
    store.set({ ...store.settings, ...settings }, $("key").value.trim());
    this.warn("");
    this.show();
    this.loadModels();
    $("prompt").focus();
  }

  switchTheme() {
    const { store, view } = this;
    store.set({ ...store.settings, theme: theme.other(view, store.settings.theme) }, store.key);
    this.show();
  }
}
