// Markdown as models write it, and LaTeX in it: a text becomes blocks of HTML in which nothing of the text is markup.
//
// `marked` reads Markdown; what it takes for HTML stays text here. Formulas are found here, because Markdown would take
// their marks for its own; each becomes an element of the class `math` with its source as text (see math.mjs).
import { Marked } from "marked";

const SAFE = /^(?:https?:\/\/|mailto:)[^\s<>"'\\]+$/i;
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[\w+/]+=*$/;
const ESCAPED = /^\\([-!"#$'*+./<=>?@^_`|~])/; // the other ones are LaTeX's: \( \[ \{ \, \; \\
const DISPLAY = /^ {0,3}(?:(\\\[)|(\$\$)|\\begin\{([A-Za-z]+\*?)\})/;
const DOLLARS = /^\$(?![\s$])(?:\\.|[^\\$\n])+(?<!\s)\$(?!\d)/; // `$5 and $10` is none
const CLOSING = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };
const LONGEST = 20000; // characters of a formula

const escaped = (text) => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);

/** Return a formula's element. `open`: its end has not come, so that there is nothing to draw yet. */
function formula(source, display, open = false) {
  return `<span class="math${display ? " display" : ""}"${open ? " data-open=\"\"" : ""}>${escaped(source)}</span>`;
}

/** A formula that begins a line: up to its end, or where that has not come, up to the next empty line. */
const displayed = {
  name: "displayed",
  level: "block",
  start: (src) => /^ {0,3}(?:\\\[|\$\$|\\begin\{)/m.exec(src)?.index,
  tokenizer(src) {
    const match = DISPLAY.exec(src);
    if (!match) return undefined;
    const [mark, bracket, , name] = match;
    const close = bracket ? "\\]" : name ? `\\end{${name}}` : "$$";
    const end = src.slice(0, LONGEST).indexOf(close, mark.length);
    if (end < 0) {
      const raw = /^.*(?:\n(?![ \t]*(?:\n|$)).*)*/.exec(src)[0];
      return { type: "displayed", raw, source: raw.trim(), rest: "", open: true };
    }
    const raw = src.slice(0, end + close.length);
    const rest = /^[^\n]*/.exec(src.slice(raw.length))[0];
    if (/[^\s.,;:]/.test(rest)) { // text goes on behind it: a paragraph that begins with it, or the next one
      return raw.includes("\n") ? { type: "displayed", raw, source: raw.trim(), rest: "" } : undefined;
    }
    return { type: "displayed", raw: raw + rest, source: raw.trim(), rest: rest.trim() };
  },
  renderer: ({ source, rest, open }) => `<div class="formula">${formula(source, true, open)}${escaped(rest)}</div>`,
};

const inText = {
  name: "inText",
  level: "inline",
  start: (src) => /\\[([]|\$/.exec(src)?.index,
  tokenizer(src) {
    const mark = src.slice(0, 2), close = CLOSING[mark];
    const end = close ? src.slice(0, LONGEST).indexOf(close, 2) : -1;
    const raw = end < 0 ? DOLLARS.exec(src.slice(0, 1024))?.[0] : src.slice(0, end + 2);
    return raw && { type: "inText", raw, display: mark === "\\[" || mark === "$$" };
  },
  renderer: ({ raw, display }) => formula(raw, display),
};

const tokenizer = {
  html() {}, // no text is HTML
  tag() {},
  escape(src) {
    const match = ESCAPED.exec(src);
    if (match) return { type: "escape", raw: match[0], text: match[1] };
    return /^\\./.test(src) ? { type: "escape", raw: src.slice(0, 2), text: src.slice(0, 2) } : undefined;
  },
};

const renderer = {
  code({ text, lang }) {
    const language = escaped(/^[\w+#.-]{1,30}/.exec(lang ?? "")?.[0] ?? "");
    return `<pre><code${language ? ` data-language="${language}"` : ""}>${escaped(text)}</code></pre>`;
  },
  link({ href, tokens }) {
    const inner = this.parser.parseInline(tokens);
    return SAFE.test(href) ? `<a href="${escaped(href)}">${inner}</a>` : `<span>${inner}</span>`;
  },
  image({ href, text }) { // pictures are not loaded from elsewhere: a link has to do
    if (PICTURE.test(href)) return `<img alt="${escaped(text)}" src="${href}">`;
    return SAFE.test(href) ? `<a href="${escaped(href)}">${escaped(text || href)}</a>` : escaped(text);
  },
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
};

const marked = new Marked({ gfm: true, breaks: true, tokenizer, renderer, extensions: [displayed, inText] });

/**
 * Return the blocks of a text: `{raw, html}`, `raw` being its part of the text.
 *
 * A text that is nested deeper than can be followed is shown as it is.
 */
export function blocks(text) {
  try {
    const tokens = marked.lexer(text);
    const { links } = tokens;
    const one = (token) => ({ raw: token.raw, html: marked.parser(Object.assign([token], { links })) });
    return tokens.filter(({ type }) => type !== "space" && type !== "def").map(one);
  } catch {
    return [{ raw: text, html: `<p>${escaped(text)}</p>` }];
  }
}
