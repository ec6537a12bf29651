"""How fast a model of a real size is. An item is `warm NAME`, which compiles its kernels, or `measure NAME FILE`.

The file gets the figures, each as soon as it is known.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from part import main

sys.path.insert(0, str(Path(__file__).parents[1] / "phases"))
from shapes import SHAPES, SMALL, Shape, write_model


def one(item: str, platform: str, small: bool) -> list[str]:
    """Start the model and let it write."""
    mode, name, *file = item.split("|")
    shape = Shape(SMALL) if small else SHAPES[name]
    sizes = {"rows": 4, "long": 64, "out": 8} if small else {"rows": 256, "long": 8192, "out": 128}
    options: dict[str, Any] = {"max_num_seqs": sizes["rows"], "max_model_len": sizes["long"] + 2 * sizes["out"]}
    options |= {"dtype": "float32", "attention_backend": "torch_sdpa"} if small else {"dtype": "bfloat16"}
    if mode == "warm":
        options["num_blocks"] = 2 * (sizes["long"] // 16 + 32)
    with tempfile.TemporaryDirectory() as folder:
        model = write_model(Path(folder), shape.config)
        options |= {"platform": platform, "load_format": "dummy", "prefix_caching": False}
        figures = Figures(Path(file[0]) if file else None)
        _measure(model, options, sizes, figures, once=mode == "warm")
    return []


class Figures:
    """Figures by name, written down with each that comes."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._told = file, {}  # type: ignore[var-annotated]

    def note(self, name: str, value: Any) -> None:
        """Write one down."""
        self._told[name] = value
        if self._file is not None:
            self._file.write_text(json.dumps(self._told))


def _measure(model: str, options: dict[str, Any], sizes: dict[str, int], figures: Figures, *, once: bool) -> None:
    from core import LLM

    began = time.perf_counter()
    with LLM(model, **options) as llm:
        figures.note("start, s", time.perf_counter() - began)
        ready = llm._engine.ready
        figures.note("start by phase, s", {phase: round(took, 3) for phase, took in ready.timeline})
        figures.note("start table", ready.facts)
        if once:
            _run(llm, 4, 16, 4)
            _run(llm, 1, sizes["long"], 2)
            return
        figures.note("one stream, tokens/s", _rate(llm, 1, 16, sizes["out"], figures, "one stream"))
        figures.note(f"{sizes['rows']} streams, tokens/s", _rate(llm, sizes["rows"], 16, sizes["out"], figures, "many"))
        _run(llm, 1, sizes["long"], 1)
        began = time.perf_counter()
        _run(llm, 2, sizes["long"], 1)
        figures.note(f"prompts of {sizes['long']}, tokens/s", 2 * sizes["long"] / (time.perf_counter() - began))
        for title, asked in (("9 steps", (sizes["rows"], 16, 9)), ("a prompt", (1, sizes["long"], 1))):
            figures.note(f"{title}: kernels that take longest, us", _longest(llm, *asked))


def _rate(llm: Any, rows: int, prompt: int, out: int, figures: Figures, name: str) -> float:
    """Return tokens a second of so many streams, the prompts' time taken off."""
    _run(llm, rows, prompt, 2)
    began = time.perf_counter()
    _run(llm, rows, prompt, 1)
    first = time.perf_counter()
    llm.call("profile", True)
    _run(llm, rows, prompt, 1 + out)
    whole = time.perf_counter() - first
    figures.note(f"{name}, phases of a step, us", llm.call("profile", False))
    return rows * out / max(1e-9, whole - (first - began))


def _longest(llm: Any, rows: int, prompt: int, out: int) -> dict[str, int]:
    """Return the kernels that took longest while so many requests were answered: name -> microseconds together."""
    from torch.profiler import ProfilerActivity, profile, supported_activities

    activities = supported_activities() - {ProfilerActivity.CPU}
    if not activities:
        return {}
    with profile(activities=activities) as found:
        _run(llm, rows, prompt, out)
    times = {event.key[:80]: int(event.self_device_time_total) for event in found.key_averages()}
    return dict(sorted(times.items(), key=lambda pair: -pair[1])[:14])


def _run(llm: Any, rows: int, prompt: int, out: int) -> None:
    from core import SamplingParams

    params = SamplingParams(temperature=0.0, max_tokens=out, ignore_eos=True)
    prompts = [{"prompt_token_ids": [3 + (i * 31 + row * 17) % 90 for i in range(prompt)]} for row in range(rows)]
    llm.generate(prompts, params)


if __name__ == "__main__":
    main(one)
