"""llama.cpp by its own `llama-batched-bench`, which feeds fixed tokens: it spends nothing on choosing them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from common import read_spec, report


def time_case(spec: dict[str, Any], case: dict[str, Any]) -> list[float]:
    """Return the seconds of every repeat."""
    batch, input_len, output_len = case["batch"], case["input_len"], case["output_len"]
    room = max(batch * (input_len + output_len), 2048)
    command = [spec["flags"][0], "-m", spec["model"], "-t", str(spec["threads"]), "-c", str(room), "-b", "2048"]
    command += ["-npp", str(input_len), "-ntg", str(output_len), "--output-format", "jsonl"]
    runs = 1 if case["once"] else spec["repeats"] + 1
    command += ["-npl", ",".join([str(batch)] * runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if len(rows) != runs:  # it prints from a thread that may come too late
        raise SystemExit(f"{case['name']}: llama-batched-bench ended with {len(rows)} of {runs} results")
    # The prompt's last position already gives the first token, so one step less than there are tokens is due.
    rest = (output_len - 1) / output_len
    return [(0.0 if case["held"] else row["t_pp"]) + row["t_tg"] * rest for row in rows[0 if case["once"] else 1 :]]


def main() -> None:
    """Time all cases."""
    spec = read_spec()
    report(seconds={case["name"]: time_case(spec, case) for case in spec["cases"]})


if __name__ == "__main__":
    main()
