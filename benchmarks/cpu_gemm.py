"""Time the packed matrix products of the CPU plugin next to `torch.nn.functional.linear`.

    python benchmarks/cpu_gemm.py [--formats bf16 f32 ...] [--rows 1 8 32 512] [--threads N] [--isa LEVEL] [--step]

For every shape it prints the best of many short repeats (other processes disturb the slower ones), the rate, and what
part of the limit that is. The limit is the larger of two times: the bytes of the weights over the bandwidth, and the
multiply-adds over the peak of the instructions. Both are given, or measured first with the library's own kernels:
the bandwidth on a weight that fits no cache, the peak on a product in the L2 cache. Where weights stay in a cache,
more than 100 % of the memory's bandwidth is possible: `--cold` walks through copies of the weight that fit no cache.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from core_plugin_cpu.native import blocks, gemm, library, pack_floats
from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.gemm import Format, PackedWeight
from core_plugin_cpu.native.program import Program

MODELS = {
    "smollm2-135m": {
        "qkv": (960, 576),
        "o": (576, 576),
        "gate_up": (3072, 576),
        "down": (576, 1536),
        "head": (49152, 576),
    },
    "llama-3.2-1b": {
        "qkv": (3072, 2048),
        "o": (2048, 2048),
        "gate_up": (16384, 2048),
        "down": (2048, 8192),
        "head": (128256, 2048),
    },
}
LAYERS = {"smollm2-135m": 30, "llama-3.2-1b": 16}
GROUPS = {Format.Q4_64: 64, Format.Q4_128: 128}
FLOAT8 = {kind: (size, dtype) for dtype, kinds in pack_floats.FLOAT8.items() for size, kind in kinds.items()}
"""How many inputs share a scale (0: all), and the codes."""

COLD_BYTES = 600 << 20
SLICE = 0.12


def best_of(run: Callable[[], object], seconds: float = SLICE) -> float:
    """Return the least seconds of one call, of as many as fit into the time, at least three."""
    run()
    least, end, count = float("inf"), time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        least, count = min(least, time.perf_counter() - start), count + 1
    return least


def packed(kind: Format, n: int, k: int) -> PackedWeight:
    """Return a random weight of the format."""
    if kind in (Format.F32, Format.BF16):
        return gemm.pack(torch.randn(n, k).to(torch.float32 if kind == Format.F32 else torch.bfloat16))
    if kind in (Format.Q4_64, Format.Q4_128):
        groups = k // (64 if kind == Format.Q4_64 else 128)
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
        return gemm.pack_groups(codes, torch.rand(n, groups), -torch.rand(n, groups))
    if kind in (Format.W8A8, Format.W8A16):
        weight = torch.randint(-127, 128, (n, k), dtype=torch.int8)
        return gemm.pack_int8(weight, torch.rand(n) / 127, activations=8 if kind == Format.W8A8 else 16)
    if kind in (Format.MXFP4, Format.NVFP4):
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
        if kind == Format.MXFP4:
            return gemm.pack_float4(codes, torch.randint(115, 125, (n, k // 32), dtype=torch.uint8))
        scales = (torch.rand(n, k // 16) * 400).to(torch.float8_e4m3fn).view(torch.uint8)
        return gemm.pack_float4(codes, scales, torch.tensor(1e-4))
    if kind in (Format.NF4, Format.FP4):
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
        return gemm.pack_table(kind, codes, torch.rand(n, -(-k // 64)), 64)
    if kind in FLOAT8:
        size, dtype = FLOAT8[kind]
        codes = (torch.randn(n, k) * 100).to(dtype).view(torch.uint8)
        return gemm.pack_float8(codes, torch.rand(n, -(-k // (size or k))), size, dtype)
    layout = blocks.FORMATS[kind.name]
    return gemm.pack_blocks(torch.randint(0, 100, (n, k // layout.values * layout.stored), dtype=torch.uint8), kind, k)


class Rotation:
    """Copies of one weight, used in turn, so that none is in a cache when its turn comes."""

    def __init__(self, kind: Format, n: int, k: int, *, cold: bool) -> None:
        first = packed(kind, n, k)
        copies = max(1, COLD_BYTES // first.nbytes) if cold else 1
        self.weights = [first, *(PackedWeight(kind, n, k, first.data.clone()) for _ in range(copies - 1))]
        self.turn = 0

    def next(self) -> PackedWeight:
        """Return the copy whose turn it is."""
        self.turn = (self.turn + 1) % len(self.weights)
        return self.weights[self.turn]


def time_product(weights: Rotation, m: int, dtype: torch.dtype) -> float:
    """Return the seconds of one product of `m` rows, buffers made beforehand."""
    weight = weights.weights[0]
    x, y = torch.randn(m, weight.k).to(dtype), torch.empty(m, weight.n, dtype=dtype)
    code = gemm.CODES[dtype]
    sizes = (m, weight.n, weight.k, weight.k, weight.n, code, code, weight.format, torch.get_num_threads())
    space = torch.empty(gemm.workspace_bytes(sizes), dtype=torch.uint8)

    def call(weight: PackedWeight) -> bytes:
        parts = (x, weight.data, weight.order, None, y, None, space)
        return gemm.GEMM.pack(*(0 if part is None else part.data_ptr() for part in parts), *sizes)

    calls = [call(weight) for weight in weights.weights]
    function = gemm.GEMM._function

    def run() -> None:
        weights.turn = (weights.turn + 1) % len(calls)
        function(calls[weights.turn])

    return best_of(run)


def limits(kind: Format, dtype: torch.dtype) -> tuple[float, float]:
    """Return bytes per second from memory and multiply-adds per second, both at their best."""
    large, small = packed(kind, 1 << 14, 1 << 14 if kind != Format.F32 else 1 << 13), packed(kind, 1024, 512)
    rate = large.nbytes / time_product(_only(large), 1, dtype)
    peak = 256 * 1024 * 512 / time_product(_only(small), 256, dtype)
    return rate, peak


def _only(weight: PackedWeight) -> Rotation:
    rotation = Rotation.__new__(Rotation)
    rotation.weights, rotation.turn = [weight], 0
    return rotation


def shapes_of(kind: Format, model: str) -> dict[str, tuple[int, int]]:
    """Return the shapes of a model's products; formats of 256 values a block cannot hold 576 of them."""
    values = blocks.FORMATS[kind.name].values if kind.name in blocks.FORMATS else GROUPS.get(kind, 1)
    return {name: (n, -(-k // values) * values) for name, (n, k) in MODELS[model].items()}


def report(kind: Format, options: argparse.Namespace) -> None:
    """Print the table of one format."""
    dtype = torch.float32 if kind == Format.F32 else torch.bfloat16
    bandwidth, peak = options.bandwidth * 1e9, options.peak * 0.5e9
    if not (bandwidth and peak):
        measured = limits(kind, dtype)
        bandwidth, peak = bandwidth or measured[0], peak or measured[1]
    print(f"\n{kind.name}: {bandwidth / 1e9:.1f} GB/s from memory, {2 * peak / 1e9:.0f} GFLOP/s")
    print(f"{'shape':>8} {'n x k':>12} {'m':>5} {'us':>9} {'GB/s':>7} {'GFLOP/s':>8} {'% limit':>8} {'torch us':>9}")
    for name, (n, k) in shapes_of(kind, options.model).items():
        weights = Rotation(kind, n, k, cold=options.cold)
        dense = torch.randn(n, k).to(dtype)
        for m in options.rows:
            seconds = time_product(weights, m, dtype)
            bound = max(weights.weights[0].nbytes / bandwidth, m * n * k / peak)
            torch_seconds = best_of(partial(F.linear, torch.randn(m, k).to(dtype), dense), SLICE / 2)
            print(
                f"{name:>8} {f'{n} x {k}':>12} {m:>5} {seconds * 1e6:>9.1f} "
                f"{weights.weights[0].nbytes / seconds / 1e9:>7.1f} {2 * m * n * k / seconds / 1e9:>8.0f} "
                f"{100 * bound / seconds:>8.0f} {torch_seconds * 1e6:>9.1f}"
            )


def step(kind: Format, rows: int, model: str) -> None:
    """Print the time of all products of a step of a model, each weight read once, as one recorded program."""
    shapes = shapes_of(kind, model)
    weights = [packed(kind, n, k) for _ in range(LAYERS[model]) for name, (n, k) in shapes.items() if name != "head"]
    weights.append(packed(kind, *shapes["head"]))
    calls: list[tuple[Entry, bytes]] = []
    keep: list[object] = []
    for weight in weights:
        x, y = torch.randn(rows, weight.k).bfloat16(), torch.empty(rows, weight.n, dtype=torch.bfloat16)
        sizes = (rows, weight.n, weight.k, weight.k, weight.n, 1, 1, int(weight.format), torch.get_num_threads())
        space = torch.empty(gemm.workspace_bytes(sizes), dtype=torch.uint8)
        parts = (x, weight.data, None, None, y, None, space)
        calls.append((gemm.GEMM, gemm.GEMM.pack(*(0 if part is None else part.data_ptr() for part in parts), *sizes)))
        keep.append((weight, x, y, space))
    seconds, size = best_of(Program(calls, keep).run, 10 * SLICE), sum(weight.nbytes for weight in weights)
    print(
        f"{kind.name:>8} {rows:>4} rows: {seconds * 1e3:.3f} ms, {size / 1e6:.0f} MB, {size / seconds / 1e9:.1f} GB/s"
    )


def main() -> None:
    """Read the options and print a table for every format."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--formats", nargs="+", default=["BF16"], type=str.upper, choices=[kind.name for kind in Format]
    )
    parser.add_argument("--model", default="smollm2-135m", choices=MODELS, help="whose products")
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 8, 32, 512])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--bandwidth", type=float, default=0.0, help="GB/s from memory (default: measured)")
    parser.add_argument("--peak", type=float, default=0.0, help="GFLOP/s of the instructions (default: measured)")
    parser.add_argument("--isa", help="cap of the instruction set")
    parser.add_argument("--cold", action="store_true", help="weights come from memory in every repeat")
    parser.add_argument("--step", action="store_true", help="all products of a step instead, weights from memory")
    options = parser.parse_args()
    if not library.available():
        raise SystemExit(f"no native library: {library.reason()}")
    if options.isa:
        library.select_isa(options.isa)
    torch.set_num_threads(options.threads)
    print(f"{library.isa()}, {options.threads} threads")
    for name in options.formats:
        if options.step:
            for rows in options.rows:
                step(Format[name], rows, options.model)
        else:
            report(Format[name], options)


if __name__ == "__main__":
    main()
