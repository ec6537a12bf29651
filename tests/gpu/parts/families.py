"""A tiny model of a family by the engine: the device's tokens are the host processor's. An item is `PLUGIN ROW`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from part import main

sys.path.insert(0, str(Path(__file__).parents[1] / "phases"))
from rows import rows_of
from tiny import generated

OPTIONS = {"dtype": "float32", "max_model_len": 128, "max_num_seqs": 6, "max_num_batched_tokens": 64}


def one(item: str, platform: str, small: bool) -> list[str]:
    """Compare the tokens."""
    plugin, _, name = item.partition(" ")
    row = next(row for row in rows_of(plugin) if row.name == name)
    further = {"model_impl": row.model_impl} if row.model_impl else {}
    with tempfile.TemporaryDirectory() as folder:
        model = str(row.write(Path(folder)))
        due = generated(model, platform="cpu", **OPTIONS, **further)
        found = generated(model, platform=platform, num_blocks=64, **OPTIONS, **further)
    return [] if found == due else [f"tokens {found}, on the host processor {due}"]


if __name__ == "__main__":
    main(one)
