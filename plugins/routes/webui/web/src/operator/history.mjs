// What is plotted: series over the readings that were made since the page was opened.
import { growth, quantile, total } from "./metrics.mjs";

const KEPT = 450; // readings: a quarter of an hour
const WINDOW = 5; // readings that latencies are taken over
const SHORTEST = 0.5; // seconds between two readings that say something about a rate

const gauge = (name, factor = 1) => ({ now }) => {
  const value = total(now.page, name);
  return value === null ? null : value * factor;
};
const rate = (name) => ({ before, now }) => {
  const grown = before && growth(before.page, now.page, name);
  return grown === null || grown === undefined ? null : grown / (now.time - before.time);
};
const share = (part, whole) => ({ earlier, now }) => {
  const all = earlier && growth(earlier.page, now.page, whole);
  return all ? (100 * growth(earlier.page, now.page, part)) / all : null;
};
const latency = (name, q) => ({ earlier, now }) => {
  const seconds = earlier && quantile(earlier.page, now.page, `core_${name}_seconds`, q);
  return seconds === null || seconds === undefined ? null : seconds * 1000;
};
const both = (title, name) => ({
  title,
  unit: "ms",
  series: [["median", latency(name, 0.5)], ["95th percentile", latency(name, 0.95)]],
});

/** The plots: title, unit, and for each line its name and how its value comes from readings. */
export const PLOTS = [
  {
    title: "Requests",
    unit: "",
    series: [["running", gauge("core_num_requests_running")], ["waiting", gauge("core_num_requests_waiting")]],
  },
  {
    title: "Throughput",
    unit: "tokens/s",
    series: [
      ["generated", rate("core_generation_tokens_total")],
      ["prompt, computed", rate("core_prompt_tokens_computed_total")],
    ],
  },
  {
    title: "KV cache",
    unit: "%",
    series: [
      ["used", gauge("core_kv_cache_usage_perc", 100)],
      ["prompt tokens found in it", share("core_prefix_cache_hits_total", "core_prefix_cache_queries_total")],
    ],
  },
  both("Time to first token", "time_to_first_token"),
  both("Time between two tokens", "inter_token_latency"),
  both("Time to last token", "e2e_request_latency"),
];

/** Readings, and the values of all plots: `columns[i]` are the numbers of plot i, its times first. */
export class History {
  constructor() {
    this.readings = [];
    this.columns = PLOTS.map(({ series }) => [[], ...series.map(() => [])]);
  }

  /** Add a page of figures that was read at a time, in seconds. */
  add(time, page) {
    const now = { time, page }, before = this.readings.at(-1);
    if (before && time - before.time < SHORTEST) return;
    this.readings = [...this.readings, now].slice(-WINDOW - 1);
    const earlier = this.readings.length > 1 ? this.readings[0] : undefined;
    PLOTS.forEach(({ series }, index) => {
      const values = [time, ...series.map(([, value]) => value({ before, earlier, now }))];
      this.columns[index] = this.columns[index].map((column, at) => [...column, values[at]].slice(-KEPT));
    });
  }
}
