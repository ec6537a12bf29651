// Colours for code in some languages. Loaded with the first block of code that names its language.
import DOMPurify from "dompurify";
import highlight from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";

const LANGUAGES = { bash, cpp, css, diff, go, java, javascript, json, python, rust, sql, typescript, xml, yaml };
const ALSO = { bash: ["console", "shell", "zsh"], cpp: ["c", "h"], json: ["jsonl"] };
const LONGEST = 50000; // characters
const ALLOWED = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true };

for (const [name, language] of Object.entries(LANGUAGES)) highlight.registerLanguage(name, language);
for (const [languageName, aliases] of Object.entries(ALSO)) highlight.registerAliases(aliases, { languageName });

/** Colour the code of an element, if its language is known. */
export function draw(node) {
  const { language } = node.dataset, text = node.textContent;
  if (!highlight.getLanguage(language) || text.length > LONGEST) return;
  const { value } = highlight.highlight(text, { language, ignoreIllegals: true });
  node.replaceChildren(DOMPurify.sanitize(value, ALLOWED));
}
