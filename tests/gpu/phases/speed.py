"""Random weights of real sizes: decode, 256 requests at once, prompts of 8k tokens, phases of a step, the start.

Kernels are compiled first, for all models at once; then each model is measured in a process of its own. Targets for
dense models: decode at 85 % of the memory's rate; 256 at once, and prompts of 8k, at 70 % of the larger limit; a start
with 12 graphs in 20 s.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from record import Record
from shapes import SHAPES, Shape
from side_by_side import side_by_side

MEASURED_SECONDS = 60


def main() -> None:
    """Run the phase."""
    record = Record()
    limits = _limits()
    names = list(SHAPES)[:1] if record.small else list(SHAPES)
    side_by_side(record, "speed", [f"warm|{name}" for name in names], each=1, seconds=100)
    for name in names:
        file = Path(sys.argv[2]).with_name("speed-model.json")
        file.unlink(missing_ok=True)
        side_by_side(record, "speed", [f"measure|{name}|{file}"], each=1, seconds=MEASURED_SECONDS)
        found = json.loads(file.read_text()) if file.is_file() else {}
        for what, value in found.items():
            record.note(f"{name}: {what}", value)
        if limits["bytes"] and SHAPES[name].numbers:
            _shares(record, name, SHAPES[name], found, limits)


def _shares(record: Record, name: str, shape: Shape, found: dict[str, float], limits: dict[str, float]) -> None:
    """Write down what parts of the device's limits were reached."""
    one, many, prompts = (found.get(f"{what}, tokens/s") for what in ("one stream", "256 streams", "prompts of 8192"))
    if one:
        record.note(f"{name}: one stream, share of bandwidth (target 0.85)", one * shape.bytes / limits["bytes"])
    if many:
        least = max(256 * shape.products / limits["flops"], shape.bytes / limits["bytes"])
        record.note(f"{name}: 256 streams, share of the larger limit (target 0.7)", many / 256 * least)
    if prompts:
        record.note(f"{name}: prompts, share of products (target 0.7)", prompts * shape.products / limits["flops"])


def _limits() -> dict[str, float]:
    """Return what the first phase measured of the device."""
    file = Path(sys.argv[2]).with_name("start.json")
    figures = json.loads(file.read_text())["figures"] if file.is_file() else {}
    return {"bytes": figures.get("memory, GB/s", 0.0) * 1e9, "flops": figures.get("products, TFLOP/s", 0.0) * 1e12}


if __name__ == "__main__":
    main()
