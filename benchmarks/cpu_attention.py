"""Paged attention on the CPU: `cpu_native` beside `torch_sdpa`, in turn, in one run (under a minute).

    python benchmarks/cpu_attention.py [--heads 9 --kv-heads 3 --head-dim 64] [--dtype bfloat16] [--kv-dtype int8]

Every figure is microseconds a layer, the least over repeats of a pass through all layers, each with a cache of its own
(so that the cache level is that of a real step). `limit` is the larger of the time that the keys and values take at the
given bandwidth and that the products take at the given peak; exponentials are not counted. `GB/s`: of keys, values and
their scales, as the native kernel reads them.

`--isa` bounds the native kernels only. For torch on a processor of the same instruction sets start with, for example,
`ONEDNN_MAX_CPU_ISA=AVX512_CORE ATEN_CPU_CAPABILITY=avx512 MKL_ENABLE_INSTRUCTIONS=AVX512`
(for AVX2: `AVX2`, `avx2`, `AVX2`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import library
from core_plugin_cpu.native.attention import SCALE_BYTES
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
from torch import Tensor

from core.api.attention import AttentionContext, AttentionSite, BatchView

BLOCK = 32

CASES = {
    "decode 1 x 128": [(127, 1)],
    "decode 1 x 1024": [(1023, 1)],
    "decode 1 x 2048": [(2047, 1)],
    "decode 1 x 8192": [(8191, 1)],
    "decode 8 x 512": [(511, 1)] * 8,
    "decode 32 x 256": [(255, 1)] * 32,
    "decode 32 x 1024": [(1023, 1)] * 32,
    "decode 32 x 2048": [(2047, 1)] * 32,
    "decode 32 x 8192": [(8191, 1)] * 32,
    "prefill 128": [(0, 128)],
    "prefill 512": [(0, 512)],
    "prefill 2048": [(0, 2048)],
    "chunk 512 at 1536": [(1536, 512)],
    "mixed 31 x 512 + 256": [(511, 1)] * 31 + [(0, 256)],
}
"""Name -> `(context, queries)` of each row."""


KV_DTYPES = {
    "": None,
    "float16": torch.float16,
    "int8": torch.int8,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


def batch_of(rows: list[tuple[int, int]]) -> tuple[BatchView, int]:
    """Return the batch, its blocks one after the other, and the number of blocks."""
    context, queries = np.array(rows, dtype=np.int64).T
    lengths = context + queries
    needed = -(-lengths // BLOCK)
    firsts = 1 + np.concatenate([[0], np.cumsum(needed)[:-1]])
    columns = np.arange(needed.max())
    tables = np.where(columns < needed[:, None], firsts[:, None] + columns, 0).astype(np.int32)
    row_of = np.repeat(np.arange(len(rows)), queries)
    starts = np.concatenate([[0], np.cumsum(queries)])
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1] - context, queries)
    slots = tables[row_of, positions // BLOCK].astype(np.int64) * BLOCK + positions % BLOCK
    view = BatchView(
        starts.astype(np.int32),
        lengths.astype(np.int32),
        torch.from_numpy(tables),
        torch.from_numpy(slots),
        int(queries.max()),
        int(lengths.max()),
    )
    return view, int(needed.sum()) + 1


def passes(
    kind: Callable[[AttentionContext], NativeAttentionBackend | TorchSdpaBackend],
    site: AttentionSite,
    dtypes: tuple[torch.dtype, torch.dtype],
    rows: list[tuple[int, int]],
    layers: int,
) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return two passes through all layers: attention alone, and storage of keys and values.

    Args:
        dtypes: Of the queries and of the cache.
    """
    dtype, kv_dtype = dtypes
    backend = kind(AttentionContext(torch.device("cpu"), dtype, kv_dtype, BLOCK))
    layer = backend.layer(site)
    batch, blocks = batch_of(rows)
    layout = backend.kv_layout(site)
    caches = [torch.zeros(blocks, *layout.block_shape, dtype=layout.dtype) for _ in range(layers)]
    fill(backend, site, caches, dtype)
    plan = backend.plan(batch)
    heads = [site.num_heads, site.num_kv_heads, site.num_kv_heads]
    q, k, v = torch.randn(len(batch.slots), sum(heads), site.head_dim).to(dtype).split(heads, 1)
    q = q.contiguous()

    def attend() -> None:
        for kv in caches:
            layer.forward(q, kv, plan)  # type: ignore[arg-type]

    def write() -> None:
        for kv in caches:
            layer.write_kv(k, v, kv, plan)  # type: ignore[arg-type]

    return attend, write


def fill(
    backend: NativeAttentionBackend | TorchSdpaBackend, site: AttentionSite, caches: list[Tensor], dtype: torch.dtype
) -> None:
    """Store random keys and values at every place."""
    places = torch.arange(len(caches[0]) * BLOCK)
    starts = np.array([0, len(places)], dtype=np.int32)
    table = torch.arange(len(caches[0]), dtype=torch.int32)[None]
    plan = backend.plan(BatchView(starts, starts[1:], table, places, len(places), len(places)))
    k, v = torch.randn(2, len(places), site.num_kv_heads, site.head_dim).to(dtype)
    for kv in caches:
        backend.layer(site).write_kv(k, v, kv, plan)  # type: ignore[arg-type]


def measure(works: list[Callable[[], None]], seconds: float) -> list[float]:
    """Return the least seconds of each, run in turn: other users of the machine only ever add time."""
    samples: list[list[float]] = [[] for _ in works]
    for work in works:
        work()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples[0]) < 3:
        for found, work in zip(samples, works):
            began = time.perf_counter()
            work()
            found.append(time.perf_counter() - began)
    return [min(found) for found in samples]


def cached_bytes(site: AttentionSite, kv_dtype: torch.dtype, rows: list[tuple[int, int]]) -> int:
    """Return the bytes that a layer's cache holds of the rows."""
    each = site.head_dim * kv_dtype.itemsize + (SCALE_BYTES if kv_dtype == torch.int8 else 0)
    return sum(context + queries for context, queries in rows) * site.num_kv_heads * 2 * each


def limit(site: AttentionSite, kv_dtype: torch.dtype, rows: list[tuple[int, int]], args: argparse.Namespace) -> float:
    """Return the least seconds that a layer can take."""
    read = cached_bytes(site, kv_dtype, rows)
    scores = sum(queries * context + queries * (queries + 1) / 2 for context, queries in rows) * site.num_heads
    return max(read / (args.bandwidth * 1e9), 4 * scores * site.head_dim / (args.peak * 1e12))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--kv-heads", type=int, default=3)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--kv-dtype", default="", choices=list(KV_DTYPES), help="default: dtype")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--isa", help="instruction set of the native kernels; default the best")
    parser.add_argument("--bandwidth", type=float, default=200.0, help="GB/s of the level that holds the cache")
    parser.add_argument("--peak", type=float, default=0.95, help="TFLOP/s of the dtype")
    parser.add_argument("--seconds", type=float, default=1.5, help="per case")
    parser.add_argument("--case", help="only cases whose name contains this")
    args = parser.parse_args()
    if args.isa:
        library.select_isa(args.isa)
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    kv_dtype = KV_DTYPES[args.kv_dtype] or dtype
    site = AttentionSite(0, args.heads, args.kv_heads, args.head_dim, args.head_dim**-0.5)
    print(
        f"{library.isa()}, {args.threads} threads, {args.dtype}, kv {args.kv_dtype or args.dtype}, "
        f"{args.heads}/{args.kv_heads} heads of {args.head_dim}"
    )
    ends = f"{'torch':>9}{'ratio':>7}"
    print(f"{'us a layer':22}{'limit':>8}{'native':>9}{'GB/s':>7}{ends}{'write':>9}{ends}")
    for name, rows in CASES.items():
        if args.case and args.case not in name:
            continue
        tokens = sum(context + queries for context, queries in rows)
        layers = max(1, min(args.layers, 2**30 // (tokens * args.kv_heads * args.head_dim * 4)))
        kinds = (NativeAttentionBackend, TorchSdpaBackend)
        works = [work for kind in kinds for work in passes(kind, site, (dtype, kv_dtype), rows, layers)]
        with torch.inference_mode():
            native, write, theirs, their_write = (1e6 * one / layers for one in measure(works, args.seconds))
        least = 1e6 * limit(site, kv_dtype, rows, args)
        rate = cached_bytes(site, kv_dtype, rows) / native / 1e3
        print(
            f"{name:22}{least:8.1f}{native:9.1f}{rate:7.1f}{theirs:9.1f}{theirs / native:7.1f}"
            f"{write:9.1f}{their_write:9.1f}{their_write / write:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
