"""Element-wise operations, foreign calls and programs on the CPU: native beside torch, in turn, in one run.

    python benchmarks/cpu_ops.py [--dtype bfloat16] [--threads 2] [--isa avx512]

Microseconds, the least over repeats. The second table says what calls cost: a foreign call, a team of threads, native
and torch work in turn, and a chain of small operations called one by one or replayed as a program.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from core_plugin_cpu import kernels
from core_plugin_cpu.native import elementwise, library
from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.record import record

from core import ops

Work = Callable[[], object]


def least(work: Work, seconds: float) -> float:
    """Return the least microseconds of one call."""
    work()
    count, best, end = 1, float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        for _ in range(count):
            work()
        spent = time.perf_counter() - began
        best = min(best, spent / count)
        count = max(1, min(1000, int(0.002 / best)))
    return best * 1e6


def operations(tokens: int, dtype: torch.dtype) -> dict[str, tuple[Work, Work]]:
    """Return name -> native and torch form, at the sizes of SmolLM2-135M."""
    x, residual = torch.randn(tokens, 576).to(dtype), torch.randn(tokens, 576).to(dtype)
    weight, wide = torch.randn(576).to(dtype), torch.randn(tokens, 3072).to(dtype)
    q, k, _ = torch.randn(tokens, 15, 64).to(dtype).split([9, 3, 3], 1)
    angles, positions = torch.randn(1024, 128).to(dtype), torch.arange(tokens)
    table, ids = torch.randn(49152, 576).to(dtype), torch.randint(0, 49152, (tokens,))
    return {
        "rms_norm": (lambda: kernels.rms_norm(x, weight, 1e-5), lambda: ops.rms_norm(x, weight, 1e-5)),
        "add_rms_norm": (
            lambda: kernels.add_rms_norm(x, residual, weight, 1e-5),
            lambda: ops.add_rms_norm(x, residual, weight, 1e-5),
        ),
        "silu_and_mul": (lambda: kernels.silu_and_mul(wide), lambda: ops.silu_and_mul(wide)),
        "gelu_and_mul": (lambda: kernels.gelu_and_mul(wide), lambda: ops.gelu_and_mul(wide)),
        "rotary": (lambda: kernels.rotary(positions, q, k, angles), lambda: ops.rotary(positions, q, k, angles)),
        "gather": (lambda: elementwise.gather(table, ids), lambda: torch.nn.functional.embedding(ids, table)),
    }


def calls(dtype: torch.dtype, threads: int) -> dict[str, Work]:
    """Return what is done, by name; a chain is 240 operations, those of 30 layers."""
    nothing, team = Entry("nothing", pointers="", sizes="unused"), Entry("team", pointers="", sizes="threads")
    x, weight = torch.randn(1, 576).to(dtype), torch.randn(576).to(dtype)
    square = torch.randn(128, 128)

    def chain() -> torch.Tensor:
        y = x
        for _ in range(240):
            y = elementwise.rms_norm(y, weight, 1e-5)
        return y

    def torch_chain() -> torch.Tensor:
        y = x
        for _ in range(240):
            y = ops.rms_norm(y, weight, 1e-5)
        return y

    def teams() -> torch.Tensor:
        for _ in range(240):
            team(threads)
        return x

    def in_turn() -> None:
        torch.mm(square, square)
        team(threads)

    program, _ = record(chain)
    forks, _ = record(teams)
    return {
        "foreign call": lambda: nothing(0),
        "foreign call with a team": lambda: team(threads),
        "torch.mm 128 x 128": lambda: torch.mm(square, square),
        "torch.mm and a native team in turn": in_turn,
        "chain of 240 norms: torch": torch_chain,
        "chain of 240 norms: native, one by one": chain,
        "chain of 240 norms: native, program": program.run,
        "240 teams in a program": forks.run,
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--isa", help="instruction set of the native kernels; default the best")
    parser.add_argument("--seconds", type=float, default=0.4, help="per figure")
    args = parser.parse_args()
    if args.isa:
        library.select_isa(args.isa)
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    print(f"{library.isa()}, {args.threads} threads, {args.dtype}")
    print(f"{'us':16}{'tokens':>8}{'native':>10}{'torch':>10}{'ratio':>8}")
    with torch.inference_mode():
        for tokens in (1, 32, 512):
            for name, (native, form) in operations(tokens, dtype).items():
                ours, theirs = least(native, args.seconds), least(form, args.seconds)
                print(f"{name:16}{tokens:8}{ours:10.1f}{theirs:10.1f}{theirs / ours:8.1f}", flush=True)
        print()
        for name, work in calls(dtype, args.threads).items():
            print(f"{name:42}{least(work, args.seconds):10.2f}", flush=True)


if __name__ == "__main__":
    main()
