// What the operator view makes of the text of /metrics.
import assert from "node:assert/strict";
import { test } from "node:test";
import { History, PLOTS } from "../src/operator/history.mjs";
import { growth, parse, quantile, total } from "../src/operator/metrics.mjs";

const TEXT = `# HELP core_http_requests_total HTTP responses by route template.
# TYPE core_http_requests_total counter
core_http_requests_total{route="/v1/models",status="200"} 3.0
core_http_requests_total{route="/a \\"b\\", {c}",status="404"} 2.0
core_num_requests_running 1.0
process_start_time_seconds 1.7e+09
`;

const histogram = (...counts) => parse([0.1, 0.2, 0.4, "+Inf"].map((le, at) => `x_bucket{le="${le}"} ${counts[at]}`).join("\n"));

test("a page is read", () => {
  const page = parse(TEXT);
  assert.equal(total(page, "core_http_requests_total"), 5);
  assert.deepEqual(page.get("core_http_requests_total")[1], { labels: { route: '/a "b", {c}', status: "404" }, value: 2 });
  assert.equal(total(page, "process_start_time_seconds"), 1.7e9);
  assert.equal(total(page, "core_nothing"), null);
});

test("growth, also of counters that began again", () => {
  const page = (value) => parse(`a ${value}`);
  assert.equal(growth(page(5), page(7), "a"), 2);
  assert.equal(growth(page(5), page(2), "a"), 2);
  assert.equal(growth(page(5), parse(""), "a"), null);
});

test("quantiles of what came in between", () => {
  const none = histogram(0, 0, 0, 0), before = histogram(100, 100, 100, 100);
  assert.equal(quantile(none, none, "x", 0.5), null);
  assert.equal(quantile(before, histogram(100, 110, 110, 110), "x", 0.5).toFixed(4), "0.1500");
  assert.equal(quantile(none, histogram(10, 10, 10, 10), "x", 0.5), 0.05);
  assert.equal(quantile(none, histogram(0, 0, 0, 4), "x", 0.95), 0.4); // the last bucket has no end
  assert.equal(quantile(none, histogram(5, 5, 10, 10), "x", 0.75).toFixed(4), "0.3000");
});

test("the series of the plots", () => {
  const page = (tokens, running) => parse(`core_generation_tokens_total ${tokens}\ncore_num_requests_running ${running}\n`);
  const history = new History(), index = PLOTS.findIndex(({ title }) => title === "Throughput");
  history.add(100, page(0, 1));
  history.add(100.1, page(5, 1)); // too soon after the last one
  history.add(102, page(50, 2));
  history.add(104, page(60, 0));
  assert.deepEqual(history.columns[index].slice(0, 2), [[100, 102, 104], [null, 25, 5]]);
  assert.deepEqual(history.columns[0][1], [1, 2, 0]);
  for (let at = 0; at < 500; at += 1) history.add(106 + at, page(60, 0));
  assert.equal(history.columns[0][0].length, 450);
});
