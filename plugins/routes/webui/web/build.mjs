// Bundles the pages: `node build.mjs FOLDER` writes every file that is served, and LICENSES.txt, into FOLDER.
import { copyFileSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = process.argv[2];
const COPIED = ["index.html", "operator.html", "icon.svg"];
const LICENCE = /^(?:licen[cs]e|copying)(?:\.(?:md|txt))?$/i;

/** Return the folders below node_modules that something in the bundle came from. */
function packages(inputs) {
  const found = Object.keys(inputs).map((path) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]);
  return [...new Set(found.filter(Boolean))].sort();
}

/** Return the text of a package's licence, under its name. */
function licence(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(here, folder, "package.json"), "utf-8"));
  const file = readdirSync(join(here, folder)).find((one) => LICENCE.test(one));
  if (!file) throw new Error(`${name} ${version} has no licence file`);
  const text = readFileSync(join(here, folder, file), "utf-8").trim();
  return `${name} ${version} (${license})\n\n${text}\n`;
}

const { metafile } = await esbuild.build({
  absWorkingDir: here,
  entryPoints: ["src/chat.mjs", "src/operator.mjs", "src/chat.css", "src/operator.css"],
  outdir: target,
  bundle: true,
  splitting: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none", // they are in LICENSES.txt
  metafile: true,
  logLevel: "warning",
});
for (const name of COPIED) copyFileSync(join(here, "src", name), join(target, name));
const rule = `\n${"-".repeat(80)}\n\n`;
const texts = packages(metafile.inputs).map(licence);
writeFileSync(join(target, "LICENSES.txt"), `Others' work in the files of this folder.\n${rule}${texts.join(rule)}`);
