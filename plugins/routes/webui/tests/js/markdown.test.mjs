// The renderer: what becomes of markdown, and what never becomes of anything.
import assert from "node:assert/strict";
import { test } from "node:test";
import { elements, inline, parse } from "../../src/core_plugin_webui/static/markdown.mjs";
import { FakeDocument } from "./page.mjs";

const html = (text) => {
  const root = new FakeDocument().createElement("div");
  root.append(...elements(parse(text), new FakeDocument()));
  return root.inner();
};

const CASES = [
  ["plain <b>text</b> & more", "<p>plain &lt;b&gt;text&lt;/b&gt; &amp; more</p>"],
  ["**bold** *em* __bold__ _em_ ~~gone~~", "<p><strong>bold</strong> <em>em</em> <strong>bold</strong> <em>em</em> <del>gone</del></p>"],
  ["**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"],
  ["*a **b** c*", "<p><em>a <strong>b</strong> c</em></p>"],
  ["2 * 3 * 4 and snake_case_name", "<p>2 * 3 * 4 and snake_case_name</p>"],
  ["`a*b*` ``x`y``", "<p><code>a*b*</code> <code>x`y</code></p>"],
  ["\\*not\\* \\_em\\_", "<p>*not* _em_</p>"],
  ["one\ntwo\n\nthree", "<p>one<br></br>two</p><p>three</p>"],
  ["# A `b`\n### C ###", "<h1>A <code>b</code></h1><h3>C</h3>"],
  ["#no heading", "<p>#no heading</p>"],
  ["a\n\n---\n\nb", "<p>a</p><hr></hr><p>b</p>"],
  ["```py\nif a < b:\n  **x**\n```\nafter", '<pre><code language="py">if a &lt; b:\n  **x**</code></pre><p>after</p>'],
  ["```\nstill coming", "<pre><code>still coming</code></pre>"],
  ["~~~\n```\n~~~", "<pre><code>```</code></pre>"],
  ["- a\n- b\n  - c\n- d", "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>"],
  ["3. a\n4. b", '<ol start="3"><li>a</li><li>b</li></ol>'],
  ["1. a\n\n   more\n2. b", "<ol><li><p>a</p><p>more</p></li><li>b</li></ol>"],
  ["- a\n\n```\ncode\n```", "<ul><li>a</li></ul><pre><code>code</code></pre>"],
  ["1. a\n   ```\n   x\n   ```", "<ol><li>a<pre><code>x</code></pre></li></ol>"],
  ["- a\n\nthen", "<ul><li>a</li></ul><p>then</p>"],
  ["> a\n> > b\n\nc", "<blockquote><p>a</p><blockquote><p>b</p></blockquote></blockquote><p>c</p>"],
  ["| a | b |\n|--|:-:|\n| 1 | `x|y` |\n| 2 |", '<table><thead><tr><th>a</th><th class="center">b</th></tr></thead><tbody>'
    + '<tr><td>1</td><td class="center"><code>x|y</code></td></tr><tr><td>2</td><td class="center"></td></tr></tbody></table>'],
  ["a | b\nc | d", "<p>a | b<br></br>c | d</p>"],
  ["see https://example.org/a?b=1. Or (http://x.y)", '<p>see <a href="https://example.org/a?b=1" rel="noopener noreferrer" '
    + 'target="_blank">https://example.org/a?b=1</a>. Or (<a href="http://x.y" rel="noopener noreferrer" target="_blank">http://x.y</a>)</p>'],
  ["[a *b*](https://x.y)", '<p><a href="https://x.y" rel="noopener noreferrer" target="_blank">a <em>b</em></a></p>'],
  ["![cat](https://x.y/c.png)", '<p><a href="https://x.y/c.png" rel="noopener noreferrer" target="_blank">cat</a></p>'],
  ["", ""],
];

// LaTeX is kept to the letter.
const FORMULAS = [
  ["so \\(a_1 * b_2 * \\frac{1}{2}\\) is", '<p>so <span class="math">\\(a_1 * b_2 * \\frac{1}{2}\\)</span> is</p>'],
  ["\\[x\\] and $$y_1 _z_$$ too", '<p><span class="math">\\[x\\]</span> and <span class="math">$$y_1 _z_$$</span> too</p>'],
  ["with $a_1 + b_2$ or $\\{x\\}$.", '<p>with <span class="math">$a_1 + b_2$</span> or <span class="math">$\\{x\\}$</span>.</p>'],
  ["$5 and $10, \\$1 to \\$2", "<p>$5 and $10, $1 to $2</p>"],
  ["text\n\\[\na &= b \\\\\n- c\n= d\n\\]\nmore", '<p>text</p><div class="math">\\[\na &amp;= b \\\\\n- c\n= d\n\\]</div><p>more</p>'],
  ["$$\n\n# x\n$$ then", '<div class="math">$$\n\n# x\n$$</div><p>then</p>'],
  ["\\begin{aligned}\n*a* \\\\ b\n\\end{aligned}", '<div class="math">\\begin{aligned}\n*a* \\\\ b\n\\end{aligned}</div>'],
  ["\\[ x = 1 \\].", '<div class="math">\\[ x = 1 \\].</div>'],
  ["1. so:\n   \\[\n   \\frac{a}{b}\n   \\]\n2. b", '<ol><li>so:<div class="math">\\[\n\\frac{a}{b}\n\\]</div></li><li>b</li></ol>'],
  ["\\[ a_1 \\\\\nb", '<div class="math">\\[ a_1 \\\\\nb</div>'],
  ["\\[ a\n\nb", '<div class="math">\\[ a</div><p>b</p>'],
  ["open \\(a \\\\ \\, b", "<p>open \\(a \\\\ \\, b</p>"],
  ["`\\(a\\)` \\\\server", "<p><code>\\(a\\)</code> \\\\server</p>"],
];
CASES.push(...FORMULAS);

for (const [text, expected] of CASES) test(`markdown: ${JSON.stringify(text).slice(0, 60)}`, () => assert.equal(html(text), expected));

const HOSTILE = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](data:text/html,<script>)",
  "[x](vbscript:x) [y](//evil.example) [z](/v1/models)",
  '[x](https://a.b" onclick="alert(1))',
  "![x](javascript:alert(1))",
  "```<script>\n</code></pre><script>alert(1)</script>\n```",
  "```\"onload=\"alert(1)\nx\n```",
  "| <script> |\n|---|\n| <iframe src=x> |",
  "# <svg onload=alert(1)>",
  "- <style>*{display:none}</style>",
];
const TAGS = new Set(("a blockquote br code del div em h1 h2 h3 h4 h5 h6 hr li ol p pre span strong table tbody td th thead tr ul").split(" "));

for (const text of HOSTILE) {
  test(`hostile: ${text.slice(0, 50)}`, () => {
    const root = new FakeDocument().createElement("div");
    root.append(...elements(parse(text), new FakeDocument()));
    for (const node of root.all()) {
      assert.ok(TAGS.has(node.tag), node.tag);
      assert.deepEqual(Object.keys(node.listeners), []);
      if (node.href !== undefined) assert.match(node.href, /^https?:\/\//);
      assert.equal(node.innerHTML, undefined);
    }
    if (!text.startsWith("[") && !text.startsWith("!")) assert.ok(root.textContent.length > 0);
  });
}

test("every prefix of an answer can be shown", () => {
  const text = CASES.map(([one]) => one).join("\n\n");
  for (let end = 0; end <= text.length; end += 1) parse(text.slice(0, end));
});

test("long and nested texts take no long time", () => {
  const began = Date.now();
  for (const unit of ["*", "_", "`", "[", "](", "![", "**a", "> ", "- ", "|", "~~", "h", "http://", "\\", "a*b_c`d[e", "\n", "1. ", "* * ", "``` ", "$", "$a ", "$$", "\\(", "\\[\n", "\\[\n\n", "$$\n\n", "\\begin{a}\n\n"]) {
    const text = unit.repeat(20000 / unit.length);
    parse(text);
    inline(text);
    parse(`${unit.repeat(100)}\n`.repeat(100));
  }
  const gap = " ".repeat(30000);
  for (const line of [`#${gap}x`, `-${gap}x`, `a|b\n-${gap}x`, `\`\`\`${gap}x\``, `1. ${gap}x`, `> ${gap}x`, `http://${".".repeat(30000)}`]) parse(line);
  assert.ok(Date.now() - began < 8000, `${Date.now() - began} ms`);
});
