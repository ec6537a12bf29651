// Formulas as MathML, which browsers draw and screen readers read: no fonts, no styles. Loaded with the first formula.
import katex from "katex";

const MARKS = /^(?:\\\(|\\\[|\$\$?)([^]*?)(?:\\\)|\\\]|\$\$?)$/;

/** Draw the formula whose source an element has; one that is no LaTeX stays as it was written. */
export function draw(node) {
  const source = node.textContent, displayMode = node.classList.contains("display");
  const made = document.createElement("span");
  try {
    const tex = MARKS.exec(source)?.[1] ?? source;
    katex.render(tex, made, { displayMode, output: "mathml", throwOnError: true, strict: false, maxSize: 20 });
  } catch {
    return;
  }
  node.classList.add("drawn");
  node.replaceChildren(...made.childNodes);
}
