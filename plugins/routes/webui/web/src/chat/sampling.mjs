// How tokens are chosen: the fields of a request that the settings offer, and what the server does where one is empty.
import { el } from "../common/dom.mjs";

/** Field of a request -> what it is called, and the range of numbers that it takes. */
export const FIELDS = {
  temperature: { label: "Temperature", min: 0, max: 2, step: 0.05 },
  top_p: { label: "Top-p", min: 0, max: 1, step: 0.01 },
  top_k: { label: "Top-k", min: -1, step: 1 },
  min_p: { label: "Min-p", min: 0, max: 1, step: 0.01 },
  repetition_penalty: { label: "Repetition penalty", min: 0.01, max: 2, step: 0.01 },
  presence_penalty: { label: "Presence penalty", min: -2, max: 2, step: 0.1 },
  frequency_penalty: { label: "Frequency penalty", min: -2, max: 2, step: 0.1 },
  seed: { label: "Seed", step: 1, none: "another one each time" },
  max_tokens: { label: "Most tokens", min: 1, step: 1, none: "as many as fit" },
};

/** Return an input for each field, with its label and a place for the server's default. */
export function inputs() {
  return Object.entries(FIELDS).map(([name, { label, none, ...range }]) => {
    const input = el("input", { type: "number", id: name, ...range, "aria-describedby": `${name}-default` });
    const said = el("span", { id: `${name}-default`, className: "default" }, none ?? "");
    const node = el("div", { className: "field" }, el("label", { htmlFor: name }, label), input, said);
    return { name, input, said, node };
  });
}

/** Return what is said of the default of a field, given the server's sampling parameters; "" if nothing is known. */
export function said(name, defaults) {
  const { none } = FIELDS[name];
  if (none) return none;
  const value = defaults?.[name];
  return typeof value === "number" ? `server: ${Number(value.toFixed(4))}` : "";
}

/** Return the fields of a request that the settings give. */
export function chosen(settings) {
  const found = {};
  for (const name of Object.keys(FIELDS)) {
    const text = settings[name] ?? "", value = Number(text);
    if (text !== "" && Number.isFinite(value)) found[name] = value;
  }
  return found;
}
