// The settings: which model, how it answers, the key, and light or dark.
import { Refused, models } from "./ask.mjs";
import { el } from "../common/dom.mjs";

const FIELDS = ["model", "system", "temperature", "max_tokens"];

/** The dialog of the settings, and what of them is seen elsewhere. `warn(text)` shows an error. */
export class Settings {
  constructor(view, store, warn) {
    Object.assign(this, { view, store, warn });
    this.$ = (id) => view.document.getElementById(id);
    const { $ } = this;
    $("open-settings").addEventListener("click", () => this.open());
    $("settings").addEventListener("close", () => this.close());
    $("theme").addEventListener("click", () => this.switchTheme());
  }

  /** Show what is set, also by another tab. */
  show() {
    this.$("title").textContent = this.store.settings.model || "core";
    if (this.store.settings.theme) this.view.document.documentElement.dataset.theme = this.store.settings.theme;
  }

  /** Ask the server for its models. */
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
    }
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
    for (const name of FIELDS) if (name !== "model") $(name).value = store.settings[name] ?? "";
    $("key").value = store.key;
    if (!this.isOpen) $("settings").showModal();
    $(focused).focus();
  }

  close() {
    const { $, store } = this;
    const settings = Object.fromEntries(FIELDS.map((name) => [name, $(name).value.trim()]));
    if (!settings.model) settings.model = store.settings.model ?? "";
    store.set({ ...store.settings, ...settings }, $("key").value.trim());
    this.warn("");
    this.loadModels();
    $("prompt").focus();
  }

  switchTheme() {
    const { store, view } = this;
    const dark = view.matchMedia("(prefers-color-scheme: dark)").matches;
    const now = store.settings.theme ?? (dark ? "dark" : "light");
    store.set({ ...store.settings, theme: now === "dark" ? "light" : "dark" }, store.key);
    this.show();
  }
}
