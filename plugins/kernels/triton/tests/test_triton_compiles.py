"""The kernels compile for cards that are not here, by Triton's own compilers, and fit their shared memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHARED = {
    "cuda:80": 163,
    "cuda:86": 99,
    "cuda:89": 99,
    "cuda:90": 227,
    "cuda:100": 227,
    "cuda:120": 99,
    "hip:gfx90a": 64,
    "hip:gfx942": 64,
    "hip:gfx950": 160,
    "hip:gfx1100": 64,
}
"""KiB of shared memory that one program may take."""

CASES = [
    ("bfloat16", "bfloat16", "128", "none"),
    ("bfloat16", "float8_e4m3fn", "128", "all"),
    ("bfloat16", "bfloat16", "64", "all"),
    ("float16", "float8_e5m2", "96", "none"),
    ("bfloat16", "bfloat16", "256", "all"),
    ("float32", "float32", "128", "none"),
    ("float32", "bfloat16", "256", "all"),
]


def compiled(card, case, tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("compile_attention.py")
    done = subprocess.run([sys.executable, script, card, *case], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def held(card, case, tmp_path):
    found = compiled(card, case, tmp_path)
    assert found.keys() == {"prompt", "whole", "split", "merge", "store"}
    assert {name: taken for name, taken in found.items() if taken > SHARED[card] * 1024} == {}


def test_an_h100_s_kernels_compile(tmp_path):
    held("cuda:90", CASES[0], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", CASES, ids="-".join)
@pytest.mark.parametrize("card", SHARED)
def test_every_card_s_kernels_compile(card, case, tmp_path):
    held(card, case, tmp_path)
