// Calls of tools, folded, and the form in which their results are given.
import { button, el } from "../common/dom.mjs";

/** Return a JSON text with lines and indents; any other text as it is. */
export function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** Return what shows the calls of an answer. */
export function shownCalls(calls) {
  const shown = ({ name, arguments: said }) => folded(`Calls ${name || "a tool"}`, indented(said), `Arguments of ${name}`);
  return calls.map(shown);
}

/** Return what shows a tool's result. */
export function shownResult(text) {
  return folded("Result of a tool", indented(text), "Result");
}

function folded(title, text, label) {
  const pre = el("pre", { tabIndex: 0, role: "region", "aria-label": label }, el("code", {}, text));
  return el("details", { className: "call" }, el("summary", {}, title), pre);
}

/** Return a form for the results of calls; `send` is given `[{call, content}]`. */
export function resultForm(calls, send) {
  const fields = calls.map(({ id, name }) => ({ call: id, name, input: el("textarea", { rows: 2 }) }));
  const submit = (event) => {
    event.preventDefault();
    return send(fields.map(({ call, input }) => ({ call, content: input.value })));
  };
  const labels = fields.map(({ name, input }) => el("label", {}, `Result of ${name}`, input));
  const sending = button("Send results", "Send results to the model");
  sending.type = "submit";
  return el("form", { className: "results", onsubmit: submit }, labels, sending);
}
