// What was chosen and why, what failed, what a profile found, and the log: data as elements.
import { el } from "../common/dom.mjs";

const MARKS = { chosen: "✓", ok: "·", rejected: "✗", failed: "!" };
const WORDS = { chosen: "chosen", ok: "could serve", rejected: "cannot serve", failed: "failed" };

function table(heads, rows, label) {
  const head = el("thead", {}, el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text))));
  const body = el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))));
  const frame = { className: "scroll", tabIndex: 0, role: "region", "aria-label": label }; // wide: scrolled by keyboard too
  return el("div", frame, el("table", {}, head, body));
}

/** Return a folded part for each choice: what won, how, and every candidate with what speaks against it. */
export function choices(selections) {
  return selections.map(({ kind, subject, asked, how, chosen, candidates, notes, error }) => {
    const title = [`${kind}${subject ? ` (${subject})` : ""}: `, el("b", {}, chosen ?? "none"), how ? `, ${how}` : ""];
    const rows = candidates.map(({ name, distribution, version, state, score, reasons, code }) => [
      `${MARKS[state] ?? ""} ${WORDS[state] ?? state}`, name, `${distribution} ${version}`, score === null ? "–" : String(score),
      [...reasons, ...(code ? [code] : [])].join("; "),
    ]);
    const said = [...(asked ? [`Asked for: ${asked}`] : []), ...notes, ...(error ? [error.message] : [])];
    return el("details", {}, el("summary", {}, title), said.map((text) => el("p", {}, text)),
      table(["verdict", "name", "distribution", "score", "why not"], rows, `Candidates: ${kind} ${subject}`));
  });
}

/** Return a table of what failed in plugins; a sentence where nothing did. */
export function faults(found) {
  if (!found.length) return el("p", {}, "Nothing failed in a plugin.");
  const rows = found.map((one) => [one.group, one.name, String(one.faults), one.last]);
  return table(["kind", "plugin", "faults", "the last one"], rows, "Faults of plugins");
}

/** Return a table of the phases of a profile. */
export function phases(found) {
  const milliseconds = (seconds) => `${(seconds * 1000).toFixed(3)} ms`;
  const rows = found.map(({ phase, what, count, total_s, median_s, p99_s }) => [
    phase, String(count), `${total_s.toFixed(3)} s`, milliseconds(median_s), milliseconds(p99_s), what,
  ]);
  return table(["phase", "count", "total", "median", "99th percentile", "what it is"], rows, "Phases of the engine's steps");
}

/** Return the lines of the log, of one level or worse. */
export function lines(found, level) {
  const order = ["debug", "info", "warning", "error", "critical"], least = order.indexOf(level);
  return found.filter((line) => order.indexOf(line.level) >= least).map(({ time, level: its, process, logger, message }) => {
    const when = new Date(time * 1000).toLocaleTimeString([], { hour12: false });
    return el("p", { className: its }, `${when} ${its} ${process} ${logger}: ${message}`);
  });
}

/** Return rows of name and value. */
export function facts(pairs) {
  return pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}
