"""Time multi-head latent attention of one layer, in the CPU plugin's kernels and in plain torch.

    python benchmarks/cpu_latent.py [--decode 4096 ...] [--prefill 512 ...] [--kv-dtype D] [--threads N] [--isa LEVEL]

The sizes are those of DeepSeek V2 Lite: 16 heads, latents of 512 and rotated keys of 64 numbers, keys of 128 + 64 and
values of 128. A call is what a layer does between its projections: queries brought to the latents, attention over a
paged cache, values. Decoding is one token behind so many others; prompts are whole. Beside the least and the median of
many repeats stand what must be read and multiplied: cache and up-projections once, and the products of the form that
takes fewer of them. One thread is timed by what it ran, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import library
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api.attention import AttentionContext, BatchView, LatentSite

SITE = LatentSite(0, 16, 512, 64, 128, 128, 192**-0.5)
BLOCK, SECONDS = 32, 3.0
BACKENDS = {"native": NativeAttentionBackend, "torch": TorchSdpaBackend}


def times_of(run: Callable[[], object], seconds: float = SECONDS) -> list[float]:
    """Return the seconds of each call, of as many as fit into the time, at least three; the first does not count."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = clock()
        run()
        times.append(clock() - start)
    return times


def view(length: int, new: int) -> BatchView:
    """Return a step of one row with `new` tokens, which ends at `length`; its blocks are scattered."""
    blocks = -(-length // BLOCK)
    table = np.random.default_rng(0).permutation(blocks).astype(np.int32)
    positions = np.arange(length - new, length)
    slots = table[positions // BLOCK].astype(np.int64) * BLOCK + positions % BLOCK
    starts, lengths = np.array([0, new], np.int32), np.array([length], np.int32)
    return BatchView(starts, lengths, torch.from_numpy(table[None].copy()), torch.from_numpy(slots), new, length)


def prepared(make: Any, length: int, new: int, kv_dtype: torch.dtype) -> Callable[[], object]:
    """Return the call of a layer, over a cache that holds all positions."""
    torch.manual_seed(0)
    backend = make(AttentionContext(torch.device("cpu"), torch.bfloat16, kv_dtype, BLOCK))
    layer, layout = backend.latent(SITE), backend.latent_layout(SITE)
    key = torch.randn(SITE.num_heads, SITE.key_dim, SITE.latent_dim) * SITE.latent_dim**-0.5
    value = torch.randn(SITE.num_heads, SITE.latent_dim, SITE.value_dim) * SITE.latent_dim**-0.5
    layer.use_up(key.bfloat16(), value.bfloat16())
    cache = torch.zeros(-(-length // BLOCK), *layout.block_shape, dtype=layout.dtype)
    kept = torch.randn(length, SITE.latent_dim + SITE.rope_dim).bfloat16()
    layer.write(*kept.split_with_sizes([SITE.latent_dim, SITE.rope_dim], -1), cache, backend.plan(view(length, length)))
    q = torch.randn(new, SITE.num_heads, SITE.key_dim + SITE.rope_dim).bfloat16()
    parts, plan = q.split_with_sizes([SITE.key_dim, SITE.rope_dim], -1), backend.plan(view(length, new))
    return lambda: layer.forward(*parts, cache, plan)


def limits(length: int, new: int, kv_dtype: torch.dtype) -> tuple[float, float]:
    """Return the bytes that must be read and the operations of the cheaper form."""
    width, up = SITE.latent_dim + SITE.rope_dim, SITE.latent_dim * (SITE.key_dim + SITE.value_dim)
    pairs = new * (length - new) + new * (new + 1) / 2
    absorbed = pairs * (width + SITE.latent_dim) + new * up
    expanded = pairs * (SITE.key_dim + SITE.rope_dim + SITE.value_dim) + length * up
    read = length * width * kv_dtype.itemsize + SITE.num_heads * up * 2
    return read, 2 * SITE.num_heads * min(absorbed, expanded)


def report(length: int, new: int, kv_dtype: torch.dtype) -> None:
    """Print a line for each backend."""
    read, operations = limits(length, new, kv_dtype)
    for name, make in BACKENDS.items():
        times = times_of(prepared(make, length, new, kv_dtype))
        least = min(times)
        print(
            f"{name:>8} {length:>7} {new:>5} {1e3 * least:>9.3f} {1e3 * median(times):>9.3f} {read / 1e6:>7.1f} "
            f"{read / least / 1e9:>6.1f} {operations / 1e9:>8.2f} {operations / least / 1e9:>8.0f}"
        )


def main() -> None:
    """Read the options and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decode", nargs="*", type=int, default=[4096])
    parser.add_argument("--prefill", nargs="*", type=int, default=[512, 2048])
    parser.add_argument("--kv-dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--isa", help="cap of the instruction set")
    options = parser.parse_args()
    if not library.available():
        raise SystemExit(f"no native library: {library.reason()}")
    if options.isa:
        library.select_isa(options.isa)
    torch.set_num_threads(options.threads)
    print(f"{library.isa()}, {options.threads} threads, cache of {options.kv_dtype}")
    print(f"{'length':>16} {'new':>5} {'least ms':>9} {'median ms':>9} {'MB':>7} {'GB/s':>6} {'GFLOP':>8} GFLOP/s")
    with torch.inference_mode():
        for length in options.decode:
            report(length, 1, getattr(torch, options.kv_dtype))
        for length in options.prefill:
            report(length, length, getattr(torch, options.kv_dtype))


if __name__ == "__main__":
    main()
