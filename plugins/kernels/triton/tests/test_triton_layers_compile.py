"""Kernels of layers compile for cards that are not here, by Triton's own compilers, and fit their shared memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = {"cuda:80": 163, "cuda:90": 227, "cuda:100": 227, "cuda:120": 99, "hip:gfx942": 64, "hip:gfx950": 160}
"""KiB of shared memory that one program may take."""


def held(card, dtype, tmp_path, *parts):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("compile_layers.py")
    command = [sys.executable, script, card, dtype, *parts]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found and {name: taken for name, taken in found.items() if taken > SHARED[card] * 1024} == {}


@pytest.mark.parametrize("part", ["experts", pytest.param("latent", marks=pytest.mark.exhaustive), "recurrent"])
def test_an_h100_s_kernels_compile(tmp_path, part):
    held("cuda:90", "bfloat16", tmp_path, part)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("card", SHARED)
def test_every_card_s_kernels_compile(card, dtype, tmp_path):
    held(card, dtype, tmp_path)
