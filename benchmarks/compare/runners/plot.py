"""Draw throughput against latency over request rates: `plot.py TARGET.svg {name: [{rate, x, ttft, tpot}]}`."""

from __future__ import annotations

import json
import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

_PANELS = (("ttft", "median time to first token, ms"), ("tpot", "median time per output token, ms"))


def main() -> None:
    """Draw one panel per latency."""
    target, series = sys.argv[1], json.loads(sys.argv[2])
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "core", "font.size": 9})
    figure, axes = pyplot.subplots(1, len(_PANELS), figsize=(9, 3.4), constrained_layout=True)
    for panel, (key, title) in zip(axes, _PANELS):
        for name, points in series.items():
            panel.plot([point["x"] for point in points], [point[key] for point in points], marker="o", label=name)
            for point in points:
                where = (point["x"], point[key])
                panel.annotate(f"{point['rate']:g}/s", where, xytext=(3, 4), textcoords="offset points", fontsize=7)
        panel.set_xlabel("output tokens per second")
        panel.set_ylabel(title)
        panel.set_yscale("log")
        panel.grid(alpha=0.3)
        panel.legend()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
