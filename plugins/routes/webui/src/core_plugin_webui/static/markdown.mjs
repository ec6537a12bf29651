// Markdown as models write it: a text becomes a tree of plain data, the tree becomes elements. No HTML in between.
// A node is a text or {tag, children, ...}; every tag is one of those below, whatever the text says.

const DEEPEST = 16;
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])(?:[ \t]+(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const CELLS = /^[ \t]*\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-+:?[ \t]*(?:\|[ \t]*)?$/;
const SAFE = /^(?:https?:\/\/|mailto:)[^\s<>"'\\]+$/i;
const ADDRESS = /^https?:\/\/[^\s<>"'`\\]*[^\s<>"'`\\.,;:!?)\]}*_]/i;
// LaTeX: what is between these marks is shown as it is written. `$5 and $10` is none.
const MATH = /^ {0,3}(?:(\\\[)|(\$\$)|\\begin\{([A-Za-z]+\*?)\})/;
const DOLLARS = /^\$(?![\s$])(?:\\.|[^\\$\n])+(?<!\s)\$(?!\d)/;
const LONGEST_MATH = 200; // lines
const ESCAPED = /[-!"#$'*+./<=>?@^_`|~]/; // the other ones are LaTeX's: \( \[ \{ \, \; \\
const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

const node = (tag, children, more = {}) => ({ tag, children, ...more });

/** Return the blocks of a text. */
export function parse(text, depth = 0) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) at += 1;
    else at = block(lines, at, blocks, depth);
  }
  return blocks;
}

/** Read one block from line `at` on, and return the line behind it. */
function block(lines, at, blocks, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence, blocks);
  const end = MATH.test(line) ? math(lines, at, blocks) : at;
  if (end > at) return end;
  const heading = HEADING.exec(line);
  if (heading) {
    blocks.push(node(`h${heading[1].length}`, inline(heading[2] ?? "", depth)));
    return at + 1;
  }
  if (RULE.test(line)) {
    blocks.push(node("hr", []));
    return at + 1;
  }
  if (depth < DEEPEST && QUOTE.test(line)) return quote(lines, at, blocks, depth);
  if (depth < DEEPEST && ITEM.test(line)) return list(lines, at, blocks, depth);
  if (isTable(lines, at)) return table(lines, at, blocks, depth);
  return paragraph(lines, at, blocks, depth);
}

function code(lines, at, fence, blocks) {
  const mark = fence[1], language = fence[2].trim().split(/\s/)[0];
  const closed = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !closed.test(lines[end])) end += 1; // an answer that is still coming has no end yet
  blocks.push(node("pre", [lines.slice(at + 1, end).join("\n")], { language }));
  return end + 1;
}

/** Read a formula that begins a line; return the line behind it, or `at` if it belongs to the line's text. */
function math(lines, at, blocks) {
  const [mark, bracket, , name] = MATH.exec(lines[at]);
  const close = bracket ? "\\]" : name ? `\\end{${name}}` : "$$";
  let end = at, behind = lines[at].indexOf(close, mark.length);
  while (behind < 0 && (end += 1) < Math.min(lines.length, at + LONGEST_MATH)) behind = lines[end].indexOf(close);
  if (behind < 0) { // it is still coming, or never closed
    for (end = at + 1; end < lines.length && lines[end].trim();) end += 1;
    blocks.push(node("div", [lines.slice(at, end).join("\n")], { math: true }));
    return end;
  }
  behind += close.length;
  const rest = lines[end].slice(behind);
  if (end === at && /[^\s.,;:]/.test(rest)) return at;
  const whole = end > at && rest.trim(); // text goes on behind it: it begins the next block
  const last = whole ? lines[end].slice(0, behind) : lines[end];
  blocks.push(node("div", [[...lines.slice(at, end), last].join("\n").trim()], { math: true }));
  if (whole) lines[end] = rest;
  return whole ? end : end + 1;
}

function quote(lines, at, blocks, depth) {
  const inner = [];
  for (let match; at < lines.length && (match = QUOTE.exec(lines[at])); at += 1) inner.push(match[1]);
  blocks.push(node("blockquote", parse(inner.join("\n"), depth + 1)));
  return at;
}

const width = (text) => text.replace(/\t/g, "    ").length;

function list(lines, at, blocks, depth) {
  const first = ITEM.exec(lines[at]);
  const indent = width(first[1]), numbered = /\d/.test(first[2]), mark = first[2].at(-1);
  const items = [];
  let blank = false, last = at, inside = 0;
  for (; at < lines.length; at += 1) {
    const line = lines[at], match = ITEM.exec(line), inward = width(/^[ \t]*/.exec(line)[0]);
    if (!line.trim()) {
      blank = true;
      if (items.length) items.at(-1).push("");
      continue;
    }
    if (match && inward <= indent + 1 && !RULE.test(line)) {
      if (inward < indent || match[2].at(-1) !== mark) break; // of a list outside, or another list
      items.push([match[3] ?? ""]);
      inside = indent + match[2].length + 1;
    } else if (inward > indent || (!blank && !interrupts(line))) {
      items.at(-1).push(line.slice(Math.min(line.length - line.trimStart().length, inside)));
    } else break;
    blank = false;
    last = at;
  }
  const children = items.map((item) => node("li", tight(parse(item.join("\n"), depth + 1))));
  blocks.push(node(numbered ? "ol" : "ul", children, numbered ? { start: Number.parseInt(first[2], 10) } : {}));
  return last + 1;
}

/** An item of one paragraph is shown without the paragraph's distances. */
function tight(blocks) {
  if (blocks[0]?.tag !== "p" || blocks.slice(1).some((one) => one.tag === "p")) return blocks;
  return [...blocks[0].children, ...blocks.slice(1)];
}

const interrupts = (line) =>
  FENCE.test(line) || MATH.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line);

function paragraph(lines, at, blocks, depth) {
  const found = [lines[at].trim()];
  for (at += 1; at < lines.length && lines[at].trim(); at += 1) {
    if (depth < DEEPEST && (interrupts(lines[at]) || isTable(lines, at))) break;
    found.push(lines[at].trim());
  }
  blocks.push(node("p", inline(found.join("\n"), depth)));
  return at;
}

const isTable = (lines, at) =>
  lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && CELLS.test(lines[at + 1])
  && cells(lines[at]).length === cells(lines[at + 1]).length;

/** Return the cells of a row; `\|` and a `|` in code do not part them. */
function cells(line) {
  const found = [""];
  let ticks = false;
  const text = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\" && text[at + 1] === "|") found[found.length - 1] += text[(at += 1)];
    else if (text[at] === "|" && !ticks) found.push("");
    else {
      if (text[at] === "`") ticks = !ticks;
      found[found.length - 1] += text[at];
    }
  }
  return found.map((cell) => cell.trim());
}

function table(lines, at, blocks, depth) {
  const aligned = cells(lines[at + 1]).map((cell) => {
    const left = cell.startsWith(":"), right = cell.endsWith(":");
    return right ? (left ? "center" : "right") : "left";
  });
  const row = (tag, line) => {
    const texts = cells(line);
    return node("tr", aligned.map((align, place) => node(tag, inline(texts[place] ?? "", depth), { align })));
  };
  const head = row("th", lines[at]), rows = [];
  for (at += 2; at < lines.length && lines[at].includes("|"); at += 1) rows.push(row("td", lines[at]));
  blocks.push(node("table", [node("thead", [head]), ...(rows.length ? [node("tbody", rows)] : [])]));
  return at;
}

/** Return the inline nodes of a text. Each kind of mark is looked for in vain only once, so that time stays linear. */
export function inline(text, depth = 0) {
  const found = [], missing = new Set();
  let plain = "";
  const put = (one) => {
    if (plain) found.push(plain);
    plain = "";
    found.push(one);
  };
  const find = (mark, from) => {
    if (missing.has(mark)) return -1;
    const end = text.indexOf(mark, from);
    if (end < 0) missing.add(mark);
    return end;
  };
  for (let at = 0; at < text.length;) {
    const hit = one(text, at, find, depth);
    if (hit) {
      put(hit.node);
      at = hit.end;
    } else if (text[at] === "\\") {
      const next = text[at + 1] ?? "";
      plain += ESCAPED.test(next) ? next : text.slice(at, at + 2);
      at += 2;
    } else {
      // A run of marks that mean nothing is skipped as a whole.
      const run = /^(?:\*+|_+|~+|`+|.)/su.exec(text.slice(at, at + 256))[0];
      plain += run;
      at += run.length;
    }
  }
  if (plain) found.push(plain);
  return found;
}

function one(text, at, find, depth) {
  const char = text[at];
  if (char === "\n") return { node: node("br", []), end: at + 1 };
  if (char === "`") return codeSpan(text, at, find);
  if (char === "\\" || char === "$") return formula(text, at, find);
  if (char === "h" || char === "H") return address(text, at);
  if (depth >= DEEPEST) return null;
  if (char === "[") return link(text, at, find, depth);
  if (char === "!" && text[at + 1] === "[") {
    const inner = link(text, at + 1, find, depth); // pictures are not loaded from elsewhere: a link has to do
    return inner;
  }
  return "*_~".includes(char) ? marked(text, at, find, depth) : null;
}

function codeSpan(text, at, find) {
  const ticks = /^`+/.exec(text.slice(at, at + 64))[0];
  const end = find(ticks, at + ticks.length);
  if (end < 0) return null;
  return { node: node("code", [text.slice(at + ticks.length, end).replace(/\n/g, " ")]), end: end + ticks.length };
}

function formula(text, at, find) {
  const close = { "\\(": "\\)", "\\[": "\\]", $$: "$$" }[text.slice(at, at + 2)];
  const begin = close ? find(close, at + 2) : -1;
  const end = begin < 0 ? at + (DOLLARS.exec(text.slice(at, at + 1024))?.[0].length ?? 0) : begin + 2;
  return end > at ? { node: node("span", [text.slice(at, end)], { math: true }), end } : null;
}

function address(text, at) {
  if (at && /\w/.test(text[at - 1])) return null;
  const match = ADDRESS.exec(text.slice(at, at + 2048));
  return match && { node: node("a", [match[0]], { href: match[0] }), end: at + match[0].length };
}

function link(text, at, find, depth) {
  const middle = find("](", at + 1);
  if (middle < 0 || text.slice(at + 1, middle).includes("\n\n")) return null;
  const inner = text.slice(at + 1, middle);
  if (inner.includes("[")) return null; // the inner one is the link
  const end = find(")", middle + 2);
  if (end < 0) return null;
  const href = text.slice(middle + 2, end).trim().split(/\s+/)[0];
  const children = inline(inner || href, depth + 1);
  return { node: SAFE.test(href) ? node("a", children, { href }) : node("span", children), end: end + 1 };
}

function marked(text, at, find, depth) {
  for (const [mark, tag] of MARKS) {
    if (!text.startsWith(mark, at)) continue;
    const from = at + mark.length;
    if (/\s/.test(text[from] ?? " ")) return null;
    if (mark[0] === "_" && /\w/.test(text[at - 1] ?? "")) return null; // snake_case
    let end = find(mark, from + 1);
    while (end > 0 && (/\s/.test(text[end - 1]) || (mark.length === 1 && text[end + 1] === mark))) {
      end = find(mark, end + (text[end + 1] === mark ? 2 : 1));
    }
    if (end < 0) continue;
    if (mark[0] === "_" && /\w/.test(text[end + mark.length] ?? "")) return null;
    return { node: node(tag, inline(text.slice(from, end), depth + 1)), end: end + mark.length };
  }
  return null;
}

/** Return elements for nodes. `extra(pre, text)` may add something to a block of code. */
export function elements(nodes, document, extra = () => {}) {
  return nodes.map((item) => {
    if (typeof item === "string") return document.createTextNode(item);
    if (item.tag === "pre") return codeBlock(item, document, extra);
    const made = document.createElement(item.tag);
    if (item.href) {
      made.href = item.href;
      made.target = "_blank";
      made.rel = "noopener noreferrer";
    }
    if (item.math) made.className = "math";
    if (item.align && item.align !== "left") made.className = item.align;
    if (item.start !== undefined && item.start !== 1) made.start = item.start;
    made.append(...elements(item.children, document, extra));
    return made;
  });
}

function codeBlock(item, document, extra) {
  const pre = document.createElement("pre"), inner = document.createElement("code");
  inner.textContent = item.children[0];
  if (item.language) inner.dataset.language = item.language.slice(0, 30);
  pre.tabIndex = 0; // wide code is scrolled by keyboard too
  pre.append(inner);
  extra(pre, item.children[0]);
  return pre;
}
