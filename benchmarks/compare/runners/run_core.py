"""core, by its own command: one process per case."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import read_spec, report


def time_case(spec: dict[str, Any], case: dict[str, Any]) -> list[float]:
    """Return the seconds of every repeat of `core bench latency`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [str(Path(sys.executable).parent / "core"), "bench", "latency", "--model", spec["model"]]
        command += ["--dtype", spec["dtype"], "--threads", str(spec["threads"]), *spec["flags"]]
        command += ["--no-prefix-caching", "--max-model-len", "2048", "--kv-memory", f"{spec['kv_mib']}MiB"]
        command += ["--batch-size", str(case["batch"]), "--input-len", str(case["input_len"])]
        command += ["--output-len", str(case["output_len"]), "--disable-detokenize"]
        command += ["--num-iters", str(spec["repeats"]), "--warmup", "1", "--output-json", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds: list[float] = json.loads(out.read_text())["latencies"]
        return seconds


def main() -> None:
    """Time all cases."""
    spec = read_spec()
    report(seconds={case["name"]: time_case(spec, case) for case in spec["cases"]})


if __name__ == "__main__":
    main()
