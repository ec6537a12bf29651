"""Time multi-head latent attention of one layer, in the CPU plugin's kernels and in plain torch.

    python benchmarks/cpu_latent.py [--decode 4096 ...] [--prefill 512 ...] [--kv-dtype D] [--threads N] [--isa LEVEL]
                                    [--picks 2048] [--ratio 4] [--new N] [--only native]

The sizes are those of DeepSeek V2 Lite: 16 heads, latents of 512 and rotated keys of 64 numbers, keys of 128 + 64 and
values of 128. A call is what a layer does between its projections: queries brought to the latents, attention over a
paged cache, values. Decoding is one token behind so many others; prompts are whole, or with `--new` their last tokens.
Beside the least and the median of many repeats stand what must be read and multiplied: cache and up-projections once,
and the products of the form that takes fewer of them. One thread is timed by what it ran, which other work on the
machine disturbs less.

With `--picks` the sizes are those of DeepSeek V3.2, 128 heads of the same, whose queries see so many positions: a line
is the layer's, a second (`index`) what an index of 64 heads of 128 numbers takes to pick them. With `--ratio` they are
those of DeepSeek V4-Flash: 64 heads of 512 numbers, and an entry for each so many tokens.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import library
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api.attention import AttentionContext, BatchView, CompressedSite, LatentSite, PickSite

SITE = LatentSite(0, 16, 512, 64, 128, 128, 192**-0.5)
INDEX_HEADS, INDEX_DIM = 64, 128
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


def cached(layout: Any, length: int) -> torch.Tensor:
    """Return an empty cache for so many tokens."""
    return torch.zeros(-(-length // BLOCK), *layout.block_shape, dtype=layout.dtype)


def layer_call(
    backend: Any, site: LatentSite, length: int, new: int, picked: torch.Tensor | None
) -> Callable[[], object]:
    """Return the call of a layer, over a cache that holds all positions."""
    layer, cache = backend.latent(site), cached(backend.latent_layout(site), length)
    key = torch.randn(site.num_heads, site.key_dim, site.latent_dim) * site.latent_dim**-0.5
    value = torch.randn(site.num_heads, site.latent_dim, site.value_dim) * site.latent_dim**-0.5
    layer.use_up(key.bfloat16(), value.bfloat16())
    kept = torch.randn(length, site.latent_dim + site.rope_dim).bfloat16()
    layer.write(*kept.split_with_sizes([site.latent_dim, site.rope_dim], -1), cache, backend.plan(view(length, length)))
    q = torch.randn(new, site.num_heads, site.key_dim + site.rope_dim).bfloat16()
    parts, plan = q.split_with_sizes([site.key_dim, site.rope_dim], -1), backend.plan(view(length, new))
    if picked is None:
        return lambda: layer.forward(*parts, cache, plan)
    return lambda: layer.forward_picked(*parts, cache, plan, picked)


def entry_call(
    backend: Any, site: CompressedSite, length: int, new: int, picked: torch.Tensor | None
) -> Callable[[], object]:
    """Return the call of a layer of compressed entries, over a cache that holds all."""
    layer, cache = backend.compressed(site), cached(backend.compressed_layout(site), length)
    layer.write(torch.randn(length, site.head_dim).bfloat16(), cache, backend.plan(view(length, length)))
    q, plan = torch.randn(new, site.num_heads, site.head_dim).bfloat16(), backend.plan(view(length, new))
    return lambda: layer.forward(q, cache, plan, picked)


def index_call(backend: Any, picks: int, ratio: int, length: int, new: int) -> Callable[[], torch.Tensor | None]:
    """Return the call of a picker, over a cache that holds all index keys."""
    site = PickSite(1, INDEX_HEADS, INDEX_DIM, (INDEX_HEADS * INDEX_DIM) ** -0.5, picks, ratio)
    picker, cache = backend.picker(site), cached(backend.picker_layout(site), length)
    picker.write(torch.randn(length, INDEX_DIM).bfloat16(), cache, backend.plan(view(length, length)))
    q, weights = torch.randn(new, INDEX_HEADS, INDEX_DIM).bfloat16(), torch.randn(new, INDEX_HEADS)
    plan = backend.plan(view(length, new))
    return lambda: picker.forward(q, weights, cache, plan)


def limits(site: LatentSite, length: int, new: int, kv_dtype: torch.dtype) -> tuple[float, float]:
    """Return the bytes that must be read and the operations of the cheaper form."""
    width, up = site.latent_dim + site.rope_dim, site.latent_dim * (site.key_dim + site.value_dim)
    pairs = new * (length - new) + new * (new + 1) / 2
    most = site.picks or length
    seen = sum(min(position + 1, most) for position in range(length - new, length))
    absorbed = seen * (width + site.latent_dim) + new * up
    expanded = pairs * (site.key_dim + site.rope_dim + site.value_dim) + length * up
    read = min(length, new * most) * width * kv_dtype.itemsize + site.num_heads * up * 2
    return read, 2 * site.num_heads * min(absorbed, expanded)


def index_limits(length: int, new: int, ratio: int, kv_dtype: torch.dtype) -> tuple[float, float]:
    """Return the bytes of index keys, and the operations of their scores."""
    pairs = sum((position + 1) // ratio for position in range(length - new, length))
    return length // ratio * INDEX_DIM * kv_dtype.itemsize, 2 * pairs * INDEX_HEADS * INDEX_DIM


def entry_limits(site: CompressedSite, length: int, new: int, kv_dtype: torch.dtype) -> tuple[float, float]:
    """Return the bytes of entries that must be read, and the operations with them."""
    seen = [min((position + 1) // site.ratio, site.picks or length) for position in range(length - new, length)]
    read = min(length // site.ratio, sum(seen)) * site.head_dim * kv_dtype.itemsize
    return read, 2 * sum(seen) * site.num_heads * 2 * site.head_dim


def show(name: str, length: int, new: int, times: list[float], limits: tuple[float, float]) -> None:
    """Print a line."""
    least, (read, operations) = min(times), limits
    print(
        f"{name:>13} {length:>7} {new:>5} {1e3 * least:>9.3f} {1e3 * median(times):>9.3f} {read / 1e6:>7.1f} "
        f"{read / least / 1e9:>6.1f} {operations / 1e9:>8.2f} {operations / least / 1e9:>8.0f}",
        flush=True,
    )


def report(length: int, new: int, options: argparse.Namespace) -> None:
    """Print a line for each backend, and with picks another."""
    kv_dtype, picks, ratio = getattr(torch, options.kv_dtype), options.picks, options.ratio
    site = replace(SITE, num_heads=128, picks=picks) if picks else SITE
    for name in options.only or BACKENDS:
        torch.manual_seed(0)
        backend = BACKENDS[name](AttentionContext(torch.device("cpu"), torch.bfloat16, kv_dtype, BLOCK))
        picked = None
        if picks:
            call, limit = index_call(backend, picks, ratio, length, new), index_limits(length, new, ratio, kv_dtype)
            show(f"{name} index", length, new, times_of(call, options.seconds), limit)
            picked = call()
        if ratio > 1:
            entries = CompressedSite(0, 64, 512, 512**-0.5, ratio, picks or None)
            times = times_of(entry_call(backend, entries, length, new, picked), options.seconds)
            show(name, length, new, times, entry_limits(entries, length, new, kv_dtype))
            continue
        times = times_of(layer_call(backend, site, length, new, picked), options.seconds)
        show(name, length, new, times, limits(site, length, new, kv_dtype))


def main() -> None:
    """Read the options and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decode", nargs="*", type=int, default=[4096])
    parser.add_argument("--prefill", nargs="*", type=int, default=[512, 2048])
    parser.add_argument("--kv-dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--isa", help="cap of the instruction set")
    parser.add_argument("--picks", type=int, default=0, help="positions that a query sees; 0: all")
    parser.add_argument("--ratio", type=int, default=1, help="tokens of a compressed entry; 1: latents")
    parser.add_argument("--new", type=int, default=0, help="tokens of a prompt that are new; 0: all")
    parser.add_argument("--only", nargs="*", choices=list(BACKENDS), help="backends; all without it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the calls of a line")
    options = parser.parse_args()
    if not library.available():
        raise SystemExit(f"no native library: {library.reason()}")
    if options.isa:
        library.select_isa(options.isa)
    torch.set_num_threads(options.threads)
    print(f"{library.isa()}, {options.threads} threads, cache of {options.kv_dtype}")
    print(f"{'length':>21} {'new':>5} {'least ms':>9} {'median ms':>9} {'MB':>7} {'GB/s':>6} {'GFLOP':>8} GFLOP/s")
    with torch.inference_mode():
        for length in options.decode:
            report(length, 1, options)
        for length in options.prefill:
            report(length, min(options.new or length, length), options)


if __name__ == "__main__":
    main()
