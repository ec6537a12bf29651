// A text that may still be coming, as elements of the page: block by block, so that what was drawn stays as it is.
import DOMPurify from "dompurify";
import { el } from "../common/dom.mjs";
import { blocks } from "./markdown.mjs";

const ALLOWED = {
  ALLOWED_TAGS: ("a blockquote br code del div em h1 h2 h3 h4 h5 h6 hr img li ol p pre span strong table tbody td th thead"
    + " tr ul").split(" "),
  ALLOWED_ATTR: ["align", "alt", "class", "data-language", "data-open", "href", "src", "start"],
  RETURN_DOM_FRAGMENT: true,
};

/**
 * The elements of one text, in `node`.
 *
 * `extra(pre, text)` may add something to a block of code. `drawn()` is called when formulas or colours, whose
 * libraries are loaded when they are needed first, have changed what is seen.
 */
export class Prose {
  constructor(node, { extra = () => {}, drawn = () => {} } = {}) {
    Object.assign(this, { node, extra, drawn, blocks: [] });
  }

  /** Show a text; unless it is `whole` more of its last block may come. */
  update(text, whole) {
    const found = blocks(text);
    let same = 0;
    while (same < found.length && found[same].html === this.blocks[same]?.html) same += 1;
    for (const { nodes } of this.blocks.splice(same)) for (const node of nodes) node.remove();
    for (const { html } of found.slice(same)) {
      const nodes = [...elements(html)];
      for (const pre of nodes.flatMap((node) => [...all(node, "pre")])) this.dress(pre);
      this.node.append(...nodes);
      this.blocks.push({ html, nodes, finished: false });
    }
    this.blocks.forEach((block, index) => {
      if (whole || index < this.blocks.length - 1) this.finish(block);
    });
  }

  /** Return the texts of blocks that do not change any more. */
  finished() {
    return this.blocks.filter(({ finished }) => finished).map(({ nodes }) => nodes.map((node) => node.textContent).join(""));
  }

  dress(pre) {
    const text = pre.textContent;
    pre.tabIndex = 0; // wide code is scrolled by keyboard too
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", "Code");
    this.extra(pre, text);
  }

  finish(block) {
    if (block.finished) return;
    block.finished = true;
    const formulas = block.nodes.flatMap((node) => [...all(node, ".math:not([data-open])")]);
    const code = block.nodes.flatMap((node) => [...all(node, "code[data-language]")]);
    if (formulas.length) this.load(import("./math.mjs"), formulas);
    if (code.length) this.load(import("./code.mjs"), code);
  }

  /** Have a library draw elements; where it cannot be loaded any more, what is written stays. */
  async load(library, nodes) {
    try {
      const { draw } = await library;
      for (const node of nodes) draw(node);
      this.drawn();
    } catch { /* the server is gone, or another version of it came */ }
  }
}

function elements(html) {
  const fragment = DOMPurify.sanitize(html, ALLOWED);
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const table of fragment.querySelectorAll("table")) { // wide ones are scrolled, by keyboard too
    const frame = el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment.children;
}

function* all(node, selector) {
  if (node.matches(selector)) yield node;
  yield* node.querySelectorAll(selector);
}
