"""Time the mixture of experts of one layer, in the CPU plugin's kernels and in plain torch.

    python benchmarks/cpu_experts.py [--formats bf16 q4_0 ...] [--tokens 1 32 512] [--threads N] [--isa LEVEL]

The sizes are those of Qwen3-30B-A3B: 128 experts of 3 x 768 x 2,048 numbers, 8 for each token. A call is the product
into the inner size, the gated activation, the product back and the weighed sum. Tokens have random experts, other ones
in each repeat, so that weights come from memory. Of many repeats the least and the median are printed; the rate is that
of the weights of all experts that have a token, beside the one at which memory that fits no cache is summed up. One
thread is timed by what it ran, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from statistics import median
from typing import Any

import torch
from core_plugin_cpu.kernels import silu_and_mul
from core_plugin_cpu.native import blocks, library
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.products.experts import ExpertsIn, ExpertsOut
from torch import Tensor

from core import ops
from core.api import LayerSite, Part, ProductPlace, WeightForm
from core.ops.experts import ReferenceExpertsIn, ReferenceExpertsOut
from core_testing.conformance.tools.parts import plain_part

EXPERTS, CHOSEN, HIDDEN, SIZE = 128, 8, 2048, 768
STREAM_BYTES = 1 << 30
SECONDS = 2.0
DRAWS = 16
"""Different choices of experts."""


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


def stream_rate() -> float:
    """Return the bytes per second at which memory is summed up."""
    memory = torch.ones(STREAM_BYTES // 4)
    return STREAM_BYTES / min(times_of(memory.sum, SECONDS / 2))


def part_of(kind: Format, rows: int, inputs: int) -> Part:
    """Return random weights of one expert."""
    if kind in (Format.F32, Format.BF16):
        return plain_part(torch.randn(rows, inputs, dtype=torch.bfloat16) / inputs**0.5)
    layout = blocks.FORMATS[kind.name]
    stored = torch.randint(0, 100, (rows, inputs // layout.values * layout.stored), dtype=torch.uint8)
    return Part(WeightForm(codes=f"gguf:{kind.name}"), stored)


class Mixture:
    """The products of a layer and their weights.

    Args:
        kinds: The classes of the products, in and out.

    Attributes:
        expert_bytes: What a token reads of one expert.
    """

    def __init__(self, kinds: tuple[Any, Any], activation: Callable[[Tensor], Tensor], kind: Format) -> None:
        self._activation = activation
        self._into = self._layer(kinds[0], ("gate_proj", "up_proj"), SIZE, HIDDEN, kind)
        self._out = self._layer(kinds[1], ("down_proj",), HIDDEN, SIZE, kind)
        self.expert_bytes = sum(params["weight"].nbytes for _, params in (self._into, self._out)) // EXPERTS

    def __call__(self, x: Tensor, weights: Tensor, ids: Tensor) -> Tensor:
        """Return what the experts make of each token."""
        (into, params), (out, other) = self._into, self._out
        result: Tensor = out.apply(self._activation(into.apply(x, ids, params)), weights, ids, other)
        return result

    def _layer(
        self, make: Any, parts: tuple[str, ...], rows: int, inputs: int, kind: Format
    ) -> tuple[Any, dict[str, Tensor]]:
        part = part_of(kind, rows, inputs)
        names = [(f"{expert}.{name}", rows) for expert in range(EXPERTS) for name in parts]
        site = LayerSite("experts", "layer.experts", inputs, names, experts=EXPERTS)
        product = make(ProductPlace(site, (part.form,) * len(names), torch.device("cpu"), torch.bfloat16), {})
        params = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in product.sizes().items()}
        for index in range(len(names)):
            product.pack(part, index, params)
        return product, product.finish(params)


def draws(tokens: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield activations, weights and ids, a few different ones again and again."""
    some = []
    for _ in range(DRAWS):
        ids = torch.rand(tokens, EXPERTS).argsort(1)[:, :CHOSEN].int().contiguous()
        weights = torch.rand(tokens, CHOSEN)
        some.append((torch.randn(tokens, HIDDEN).bfloat16(), weights / weights.sum(-1, keepdim=True), ids))
    return cycle(some)


def report(name: str, mixture: Mixture, tokens: int, rate: float) -> None:
    """Print one line."""
    given = draws(tokens)
    met = sum(len(set(next(given)[2].flatten().tolist())) for _ in range(DRAWS)) / DRAWS
    times = times_of(lambda: mixture(*next(given)))
    least, usual, size = min(times), median(times), met * mixture.expert_bytes
    flops = 6 * tokens * CHOSEN * HIDDEN * SIZE / least
    print(
        f"{name:>16} {tokens:>6} {1e3 * least:>9.3f} {1e3 * usual:>9.3f} {size / 1e6:>8.0f} {size / least / 1e9:>7.1f} "
        f"{100 * size / least / rate:>8.0f} {flops / 1e9:>8.0f}"
    )


def main() -> None:
    """Read the options and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [kind.name for kind in (Format.BF16, *(Format[name] for name in blocks.FORMATS))]
    parser.add_argument("--formats", nargs="+", default=["BF16", "Q4_0"], type=str.upper, choices=known)
    parser.add_argument("--tokens", nargs="+", type=int, default=[1, 32, 512])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--isa", help="cap of the instruction set")
    parser.add_argument("--no-torch", action="store_true", help="leave out the reference form")
    options = parser.parse_args()
    if not library.available():
        raise SystemExit(f"no native library: {library.reason()}")
    if options.isa:
        library.select_isa(options.isa)
    torch.set_num_threads(options.threads)
    rate = stream_rate()
    print(f"{library.isa()}, {options.threads} threads, {rate / 1e9:.1f} GB/s from memory")
    print(
        f"{'weights':>16} {'tokens':>6} {'least ms':>9} {'median ms':>9} {'MB':>8} {'GB/s':>7} {'% memory':>8} GFLOP/s"
    )
    with torch.inference_mode():
        for name in options.formats:
            mixture = Mixture((ExpertsIn, ExpertsOut), silu_and_mul, Format[name])
            for tokens in options.tokens:
                report(name, mixture, tokens, rate)
            del mixture
        if not options.no_torch:
            mixture = Mixture((ReferenceExpertsIn, ReferenceExpertsOut), ops.silu_and_mul, Format.BF16)
            for tokens in options.tokens:
                report("torch, BF16", mixture, tokens, rate)


if __name__ == "__main__":
    main()
