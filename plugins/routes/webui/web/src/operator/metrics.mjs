// The server's figures: the text of /metrics, and what two readings of it say about the time between them.

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:\\.|[^"\\])*)"/g;

/** Return the samples of a page: name -> [{labels, value}]. */
export function parse(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = line[0] === "#" ? null : LINE.exec(line);
    if (!match) continue;
    const [, name, labels, value] = match;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels: labelsOf(labels ?? ""), value: number(value) });
  }
  return found;
}

function labelsOf(text) {
  return Object.fromEntries([...text.matchAll(LABEL)].map(([, name, value]) => [name, value.replace(/\\(.)/g, "$1")]));
}

function number(text) {
  return text === "+Inf" ? Infinity : Number(text);
}

/** Return the sum over all labels of a metric; null if the page does not have it. */
export function total(page, name) {
  const samples = page.get(name);
  return samples ? samples.reduce((sum, { value }) => sum + value, 0) : null;
}

/**
 * Return by how much a counter grew between two pages; null if it is not there. One that is smaller than before began
 * at 0 again, with an engine that was started again.
 */
export function growth(before, after, name) {
  const [from, to] = [total(before, name), total(after, name)];
  if (from === null || to === null) return null;
  return to < from ? to : to - from;
}

/**
 * Return the value below which the part `q` of what a histogram counted between two pages lies; null if it counted
 * nothing. Within a bucket values are taken to be spread evenly; of the last one, which has no end, its beginning is told.
 */
export function quantile(before, after, name, q) {
  const earlier = new Map((before.get(`${name}_bucket`) ?? []).map(({ labels, value }) => [labels.le, value]));
  const buckets = (after.get(`${name}_bucket`) ?? [])
    .map(({ labels, value }) => ({ end: number(labels.le), count: value - (earlier.get(labels.le) ?? 0) }))
    .sort((one, other) => one.end - other.end);
  const all = buckets.at(-1)?.count ?? 0;
  if (!(all > 0)) return null;
  const wanted = q * all;
  let begin = 0, below = 0;
  for (const { end, count } of buckets) {
    if (count >= wanted && count > below) {
      return end === Infinity ? begin : begin + (end - begin) * ((wanted - below) / (count - below));
    }
    [begin, below] = [end, count];
  }
  return begin;
}
