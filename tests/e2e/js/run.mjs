// Runs one client: `node run.mjs NAME SETTINGS` with the script as JSON on standard input. SETTINGS is a module that
// exports what the settings in docs/clients.md define. The report is that of ../clients/run.py.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [name, settings] = process.argv.slice(2);
const script = JSON.parse(readFileSync(0, "utf8"));
console.log = console.error;
const adapter = await import(`./adapters/${name}.mjs`);
const client = adapter.make(await import(pathToFileURL(settings)), script);

async function loop(streamed) {
  const asked = [];
  const warmth = (city) => (asked.push(city), script.RESULTS[city]);
  const said = await client.loop(warmth, streamed);
  return { said: said.map((text) => text.trim()), asked };
}

async function refused() {
  try {
    await client.ask(script.TOO_LONG, false);
  } catch (error) {
    return { type: error.constructor.name, status: error.status ?? error.statusCode ?? null, text: String(error) };
  }
  return null;
}

const checks = {
  whole: () => client.ask(script.WORDS, false),
  streamed: () => client.ask(script.WORDS, true),
  refused,
  loop: () => loop(false),
  "loop streamed": () => loop(true),
  structured: () => client.structured(),
};
const report = {};
for (const [check, run] of Object.entries(checks)) {
  try {
    report[check] = { gave: await run() };
  } catch (error) {
    report[check] = { failed: `${error.stack}\n${JSON.stringify(error)}` };
  }
}
process.stdout.write(JSON.stringify({ apis: { [adapter.api]: report }, hosts: [] }));
