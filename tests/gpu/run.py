"""What only a GPU shows, in a quarter of an hour: `make test-gpu`, or `python tests/gpu/run.py [--out FOLDER] [PHASE]`.

Each phase is a process of its own with a limit of time, and writes `FOLDER/PHASE.json` first thing and again when it
knows more, so that what was measured is there even if the next figure never comes. Without a GPU one line says so and
why, and the exit status is 0; with one it is 1 if a phase failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

PHASES_FOLDER = Path(__file__).parent / "phases"


class Phase(NamedTuple):
    """A phase and its limit in seconds."""

    name: str
    seconds: int
    what: str


PHASES = (
    Phase("start", 40, "imports, the device, its bandwidth"),
    Phase("kernels", 60, "attention, norms and gates at real shapes against float64"),
    Phase("kit", 240, "the conformance kit on the device: kernels, attention, formats, models"),
    Phase("families", 180, "a tiny model of every family: the host processor's tokens"),
    Phase("tiny", 90, "tiny models: --graphs none, decode and full, depth 0, 1 and 2, and the host processor's tokens"),
    Phase("speed", 300, "eight models of real sizes: decode, 256 at once, prompts of 8k, phases of a step, start"),
    Phase("peer", 150, "transformers' continuous batching on the same model"),
)


def platforms() -> tuple[str, list[str]]:
    """Return the platform of the first accelerator that is found here, and what the others' probes say. Torch-free."""
    from core.api.descriptors import PlatformSpec
    from core.plugins.catalog import Catalogue
    from core.plugins.drivers import load_descriptors
    from core.selection.platforms import probed

    name, said = "", []
    for candidate in load_descriptors(Catalogue.scan().entries(PlatformSpec.group))[0]:
        if candidate.spec(PlatformSpec).device_type == "cpu":
            continue
        found = probed(candidate)
        if found.available and not name:
            name = candidate.entry.name
        said.append(f"{candidate.entry.name}: {found.reason}")
    return name, said


def main(words: list[str] | None = None) -> int:
    """Run the phases, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="*", choices=[*(phase.name for phase in PHASES), []], help="Default: all.")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="Folder for the JSON files.")
    parser.add_argument("--platform", help="Platform to run on; default: the first whose probe finds a device.")
    parser.add_argument("--small", action="store_true", help="Tiny shapes: tries the script, measures nothing.")
    given = parser.parse_args(words)
    found, said = platforms()
    name = given.platform or found
    if not name:
        print(f"no GPU here ({'; '.join(said) or 'no platform for one is installed'}): nothing was run")
        return 0
    print("; ".join(said) if given.platform is None else f"platform {name}, as asked")
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = [phase for phase in PHASES if not given.phases or phase.name in given.phases]
    return int(len([phase for phase in wanted if _run(phase, name, given.out, small=given.small)]) < len(wanted))


def _run(phase: Phase, platform: str, out: Path, *, small: bool) -> bool:
    """Run a phase in a process of its own and say what came of it; return whether nothing failed."""
    file = out / f"{phase.name}.json"
    file.unlink(missing_ok=True)
    command = [sys.executable, str(PHASES_FOLDER / f"{phase.name}.py"), platform, str(file), str(int(small))]
    began = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        status = process.wait(phase.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own processes too
        status = 124
    seconds = time.perf_counter() - began
    told = json.loads(file.read_text()) if file.is_file() else {}
    failures = [*told.get("failures", []), *([f"ended with {status}"] if status else [])]
    print(f"{phase.name}: {'failed' if failures else 'done'} in {seconds:.0f} s ({phase.what}); {file}")
    for failure in failures:
        print(f"  {failure.partition(chr(10))[0][:300]}")
    for name, value in told.get("figures", {}).items():
        print(f"  {name}: {value}")
    return not failures


if __name__ == "__main__":
    sys.exit(main())
