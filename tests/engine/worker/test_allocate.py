"""Lazily committed, aligned, zeroed host memory."""

import mmap
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.worker.allocate import zeros


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int32])
@pytest.mark.parametrize("shape", [(3, 5), (7,), (2, 0), (1, 2, 3, 4)])
def test_zeros_of_any_shape_and_dtype(shape, dtype):
    tensor = zeros(shape, dtype, torch.device("cpu"))
    assert tensor.shape == shape and tensor.dtype == dtype and tensor.is_contiguous()
    assert not tensor.any()
    tensor += 1
    assert tensor.numel() == 0 or tensor.data_ptr() % mmap.PAGESIZE == 0
    assert int(tensor.sum()) == tensor.numel()


def flags_of(tensor):
    """How the system treats a tensor's memory."""
    found, inside = {}, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head, *rest = line.split()
        if "-" in head:
            low, high = (int(part, 16) for part in head.split("-"))
            inside = low <= tensor.data_ptr() < high
        elif inside:
            found[head] = rest
    return found["VmFlags:"]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not say how memory is mapped")
def test_no_huge_pages_are_asked_for():
    """With them a cache of 30 layers commits 60 MiB for one token."""
    tensor = zeros((2**24,), torch.uint8, torch.device("cpu"))
    assert "hg" not in flags_of(tensor)


COMMITTED = """
import psutil, torch
from core.worker.allocate import zeros
def resident(): return psutil.Process().memory_info().rss
before = resident()
tensor = zeros((2**28,), torch.uint8, torch.device("cpu"))
allocated = resident() - before
tensor[: 2**26] = 1
print(allocated, resident() - before)
"""


def test_pages_are_committed_when_they_are_written():
    """In a process of its own: here, memory that other tests gave back may serve the pages."""
    done = subprocess.run([sys.executable, "-c", COMMITTED], capture_output=True, text=True, check=True, timeout=60)
    allocated, written = map(int, done.stdout.split())
    assert allocated < 2**25 < written
