// Markdown: what becomes of it, and what never becomes of anything.
import assert from "node:assert/strict";
import { test } from "node:test";
import { blocks } from "../src/prose/markdown.mjs";

const html = (text) => blocks(text).map((block) => block.html).join("").replace(/>\n+(?=<|$)/g, ">");
const math = (source) => `<span class="math">${source}</span>`;
const display = (source, rest = "") => `<div class="formula"><span class="math display">${source}</span>${rest}</div>`;
const coming = (source) => `<div class="formula"><span class="math display" data-open="">${source}</span></div>`;

const CASES = [
  ["plain <b>text</b> & more", "<p>plain &lt;b&gt;text&lt;/b&gt; &amp; more</p>"],
  ["**bold** *em* __bold__ _em_ ~~gone~~", "<p><strong>bold</strong> <em>em</em> <strong>bold</strong> <em>em</em> <del>gone</del></p>"],
  ["2 * 3 * 4 and snake_case_name", "<p>2 * 3 * 4 and snake_case_name</p>"],
  ["`a*b*` ``x`y``", "<p><code>a*b*</code> <code>x`y</code></p>"],
  ["\\*not\\* \\_em\\_", "<p>*not* _em_</p>"],
  ["one\ntwo\n\nthree", "<p>one<br>two</p><p>three</p>"],
  ["# A `b`\n### C ###", "<h1>A <code>b</code></h1><h3>C</h3>"],
  ["```py\nif a < b:\n  **x**\n```\nafter", '<pre><code data-language="py">if a &#60; b:\n  **x**</code></pre><p>after</p>'],
  ["```\nstill coming", "<pre><code>still coming</code></pre>"],
  ["- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"],
  ["3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'],
  ["- [x] a\n- [ ] b", "<ul><li>☑ a</li><li>☐ b</li></ul>"],
  ["> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"],
  ["| a | b |\n|--|:-:|\n| 1 | 2 |", '<table><thead><tr><th>a</th><th align="center">b</th></tr></thead>'
    + '<tbody><tr><td>1</td><td align="center">2</td></tr></tbody></table>'],
  ["(http://x.y)", '<p>(<a href="http://x.y">http://x.y</a>)</p>'],
  ["[a *b*](https://x.y)", '<p><a href="https://x.y">a <em>b</em></a></p>'],
  ["![cat](https://x.y/c.png)", '<p><a href="https://x.y/c.png">cat</a></p>'],
  ["![c&t](data:image/png;base64,AAA=)", '<p><img alt="c&#38;t" src="data:image/png;base64,AAA="></p>'],
  ["![x](data:image/svg+xml;base64,AAA=)", "<p>x</p>"],
  ["", ""],
];

// LaTeX is kept to the letter.
const FORMULAS = [
  ["so \\(a_1 * b_2 * \\frac{1}{2}\\) is", `<p>so ${math("\\(a_1 * b_2 * \\frac{1}{2}\\)")} is</p>`],
  ["with $a_1 + b_2$ or $\\{x\\}$.", `<p>with ${math("$a_1 + b_2$")} or ${math("$\\{x\\}$")}.</p>`],
  ["$5 and $10, \\$1 to \\$2", "<p>$5 and $10, $1 to $2</p>"],
  ["text\n\\[\na &= b \\\\\n- c\n= d\n\\]\nmore", `<p>text</p>${display("\\[\na &#38;= b \\\\\n- c\n= d\n\\]")}<p>more</p>`],
  ["$$\n\n# x\n$$ then", `${display("$$\n\n# x\n$$")}<p> then</p>`],
  ["\\begin{aligned}\n*a* \\\\ b\n\\end{aligned}", display("\\begin{aligned}\n*a* \\\\ b\n\\end{aligned}")],
  ["\\[ x = 1 \\].", display("\\[ x = 1 \\]", ".")],
  ["1. so:\n   \\[\n   \\frac{a}{b}\n   \\]\n2. b", `<ol><li>so:${display("\\[\n\\frac{a}{b}\n\\]")}</li><li>b</li></ol>`],
  ["\\[ a_1 \\\\\nb", coming("\\[ a_1 \\\\\nb")],
  ["\\[ a\n\nb", `${coming("\\[ a")}<p>b</p>`],
  ["open \\(a \\\\ \\, b", "<p>open \\(a \\\\ \\, b</p>"],
  ["`\\(a\\)` \\\\server", "<p><code>\\(a\\)</code> \\\\server</p>"],
];
CASES.push(...FORMULAS);

for (const [text, expected] of CASES) test(`markdown: ${JSON.stringify(text).slice(0, 60)}`, () => assert.equal(html(text), expected));

const HOSTILE = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) ![x](javascript:alert(1))",
  "[x](data:text/html,<script>)",
  "[x](vbscript:x) [y](//evil.example) [z](/v1/models)",
  '[x](https://a.b" onclick="alert(1))',
  '![" onerror="x](data:image/png;base64,AA== "t")',
  "```<script>\n</code></pre><script>alert(1)</script>\n```",
  "```\"onload=\"alert(1)\nx\n```",
  "| <script> |\n|---|\n| <iframe src=x> |",
  "# <svg onload=alert(1)>",
  "- <style>*{display:none}</style>",
  "\\[ <img src=x onerror=alert(1)> \\] and \\(</span><script>\\)",
];
const TAG = /<(\/?)([a-z0-9]+)((?: [\w-]+="[^"<>]*")*)>/g;
const TAGS = new Set(("a blockquote br code del div em h1 h2 h3 h4 h5 h6 hr img li ol p pre span strong table tbody td th"
  + " thead tr ul").split(" "));

for (const text of HOSTILE) {
  test(`hostile: ${text.slice(0, 50)}`, () => {
    const made = html(text);
    assert.ok(!/[<>]/.test(made.replace(TAG, "")), made);
    for (const [, , tag, attributes] of made.matchAll(TAG)) {
      assert.ok(TAGS.has(tag), tag);
      for (const [, name, value] of attributes.matchAll(/ ([\w-]+)="([^"]*)"/g)) {
        assert.match(name, /^(?:align|alt|class|data-language|data-open|href|src|start)$/);
        if (name === "href") assert.match(value, /^https?:/);
        if (name === "src") assert.match(value, /^data:image\/png;/);
      }
    }
  });
}

test("every prefix of an answer can be shown", () => {
  const text = CASES.map(([one]) => one).join("\n\n");
  for (let end = 0; end <= text.length; end += 3) html(text.slice(0, end));
});

test("long and nested texts take no long time", () => {
  const before = process.cpuUsage();
  const units = ["*", "_", "`", "[", "](", "![", "**a", "> ", "- ", "|", "~~", "h", "http://", "\\", "a*b_c`d[e", "\n", "1. "];
  units.push("* * ", "``` ", "$", "$a ", "$$", "\\(", "\\[\n", "\\[\n\n", "$$\n\n", "\\begin{a}\n\n", "<", "<a ", "a_", "a@b", "[a](");
  for (const unit of units) {
    blocks(unit.repeat(6000 / unit.length));
    blocks(`${unit.repeat(50)}\n`.repeat(50));
  }
  const gap = " ".repeat(9000);
  for (const line of [`#${gap}x`, `-${gap}x`, `a|b\n-${gap}x`, `\`\`\`${gap}x\``, `1. ${gap}x`, `> ${gap}x`, `http://${".".repeat(9000)}`]) {
    blocks(line);
  }
  const { user } = process.cpuUsage(before); // microseconds of this process, however busy the machine is
  assert.ok(user < 10e6, `${user / 1e6} s`);
});
