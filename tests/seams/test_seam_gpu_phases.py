"""The script of `make test-gpu`: what it says without a GPU, and its phases on a device that stands in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "gpu" / "run.py"


def run(*words, cwd, timeout):
    return subprocess.run([sys.executable, str(RUN), *words], cwd=cwd, capture_output=True, text=True, timeout=timeout)


def test_without_a_gpu_one_line_says_so_and_nothing_is_run(tmp_path):
    done = run(cwd=tmp_path, timeout=60)
    assert done.returncode == 0
    (line,) = done.stdout.splitlines()
    assert line.startswith("no GPU here (") and line.endswith("): nothing was run")
    assert all(f"{name}: " in line for name in ("cuda", "rocm", "xpu"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(400)
@pytest.mark.parametrize("phase", ["start", "families", "tiny", "speed", "peer"])
def test_a_phase_writes_its_figures_down(plugins, tmp_path, phase):
    """Shapes are tiny: what is tried is the script."""
    plugins("fake_accelerator")
    done = run("--platform", "accelerator", "--small", phase, cwd=tmp_path, timeout=350)
    told = json.loads((tmp_path / "gpu-results" / f"{phase}.json").read_text())
    assert (done.returncode, told["failures"]) == (0, []), done.stdout + done.stderr
    assert len(told["figures"]) >= 3
