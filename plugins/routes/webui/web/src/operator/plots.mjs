// The plots, drawn by uPlot. Loaded once there is somebody to show them to.
import uPlot from "uplot";
import { el } from "../common/dom.mjs";
import { PLOTS } from "./history.mjs";

const HEIGHT = 150;

const shown = (value, unit) => {
  if (value === null || value === undefined) return "–";
  const text = value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toPrecision(3);
  return unit ? `${text} ${unit}` : text;
};

const clock = (plot, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString([], { hour12: false }));

/** All plots in a node. */
export class Plots {
  constructor(node, view) {
    Object.assign(this, { node, view });
    this.frames = PLOTS.map((plot) => new Frame(plot));
    node.replaceChildren(...this.frames.map((frame) => frame.node));
    this.watch = new view.ResizeObserver(() => this.frames.forEach((frame) => frame.fit()));
    this.frames.forEach((frame) => this.watch.observe(frame.canvas));
    this.paint();
  }

  /** Draw with the colours of the theme as it is now. */
  paint() {
    const style = this.view.getComputedStyle(this.view.document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const colours = { text: colour("faint"), line: colour("line"), series: [colour("accent"), colour("warm")] };
    this.frames.forEach((frame) => frame.paint(colours));
  }

  /** Show the columns of a `History`. */
  update(columns) {
    this.frames.forEach((frame, index) => frame.update(columns[index]));
  }
}

/** One plot: a picture, and under it the lines' names with their values now, which screen readers can read. */
class Frame {
  constructor({ title, unit, series }) {
    Object.assign(this, { title, unit, series, plot: null, data: [[], ...series.map(() => [])] });
    this.canvas = el("div", { className: "canvas", role: "img", "aria-label": title });
    this.values = series.map(() => el("span", { className: "value" }, "–"));
    const key = (index) => el("span", { className: `key key${index}` });
    const keys = series.map(([name], index) => el("li", {}, key(index), `${name} `, this.values[index]));
    this.node = el("figure", {}, el("figcaption", {}, title), this.canvas, el("ul", {}, keys));
  }

  paint({ text, line, series }) {
    this.plot?.destroy();
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const lines = this.series.map(([label], index) => ({ label, stroke: series[index], width: 1.5, spanGaps: false }));
    this.plot = new uPlot({
      width: Math.max(this.canvas.clientWidth, 100),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (plot, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, space: 90, values: clock }, { ...axis, size: 60 }],
      series: [{}, ...lines],
    }, this.data, this.canvas);
  }

  fit() {
    const width = this.canvas.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  update(data) {
    this.data = data;
    this.plot.setData(data);
    const said = this.series.map(([name], index) => {
      const text = shown(data[index + 1].at(-1), this.unit);
      this.values[index].textContent = text;
      return `${name} ${text}`;
    });
    this.canvas.setAttribute("aria-label", `${this.title}: ${said.join(", ")}`);
  }
}
