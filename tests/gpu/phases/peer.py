"""transformers' continuous batching on the same model, beside core: a target of three times its rate."""

from __future__ import annotations

import sys
from pathlib import Path

from record import Record
from side_by_side import side_by_side

TARGET = 3.0


def main() -> None:
    """Run the phase."""
    record, rates = Record(), {}
    for engine in ("core", "transformers"):
        file = Path(sys.argv[2]).with_name(f"peer-{engine}.txt")
        file.unlink(missing_ok=True)
        side_by_side(record, "peer", [f"{engine}|{file}"], each=1, seconds=75)
        if file.is_file():
            rates[engine] = float(file.read_text())
            record.note(f"1B, 64 requests, {engine}, tokens/s", rates[engine])
    if len(rates) == 2:
        record.note(f"core by transformers (target {TARGET:g})", rates["core"] / rates["transformers"])


if __name__ == "__main__":
    main()
