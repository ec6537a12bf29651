"""The kernels compile for cards that are not here, by Triton's own compilers, and need little shared memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CARDS = ("cuda:80", "cuda:90", "cuda:100", "cuda:120", "hip:gfx90a", "hip:gfx942", "hip:gfx950", "hip:gfx1100")
FEW = ("norm 011", "activation 01", "rotary 0", "embedding", "sections", "best", "draw 1", "mask_tokens", "penalize")
MOST = 48 * 1024


def compiled(card, dtype, tmp_path, *jobs, ones="many"):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("compile_ops.py")
    command = [sys.executable, script, card, dtype, ones, *jobs]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_an_h100_s_kernels_compile(tmp_path):
    found = compiled("cuda:90", "bfloat16", tmp_path, *FEW)
    assert found.keys() == set(FEW) and max(found.values()) <= MOST


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("card", CARDS)
def test_every_card_s_kernels_compile(card, dtype, tmp_path):
    found = compiled(card, dtype, tmp_path)
    assert len(found) == 25 and max(found.values()) <= MOST


@pytest.mark.exhaustive
def test_sizes_of_one_compile(tmp_path):
    assert len(compiled("cuda:90", "bfloat16", tmp_path, ones="ones")) == 25
