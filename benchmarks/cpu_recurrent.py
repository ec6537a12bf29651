"""Time the recurrences of one layer, in the CPU plugin's kernels and in plain torch.

    python benchmarks/cpu_recurrent.py [--only NAME ...] [--decode 1 8 32] [--prompt 512 2048] [--threads N] [--isa L]

Sizes are those of layers of published models (`CASES`). Decoding is a token for each of some rows, whose states lie
anywhere in 1 GiB of them, other rows in each call, so that they come from memory; the calls are those of one recorded
program, as a model's layers are. A call reads and writes each state once, and its rate stands beside the one at which
the same memory is multiplied in place. Prompts are one row that begins: as a whole, in pieces that are too short for
the form in chunks, token by token as decode steps go, and by the forms in torch. Of many repeats the least and the
median are printed. One thread is timed by what it ran, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np
import torch
from core_plugin_cpu.native import library, recurrent
from core_plugin_cpu.native.record import record
from torch import Tensor

from core.api.states import State, StateRows
from core.ops import recurrent as forms

STATE_BYTES, MOST_SLOTS = 1 << 30, 4096
SLICE_BYTES = 1 << 25
SECONDS = 1.0
PIECE = 7
"""Tokens of a piece of a prompt that goes token by token: fewer than a chunk."""


def times_of(run: Callable[[], object], seconds: float) -> list[float]:
    """Return the seconds of each call, of as many as fit into the time, at least one; the first does not count."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = clock()
        run()
        times.append(clock() - start)
    return times


@dataclass(frozen=True)
class Attention:
    """Sizes of `linear_attention`; `decay` is "head", or "key" where each dimension of the keys decays on its own."""

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    delta: bool = False
    decay: str = "head"

    name = "linear_attention"

    @property
    def state(self) -> tuple[int, ...]:
        """Shape of a row's state."""
        return self.heads, self.key_dim, self.value_dim

    def arguments(self, tokens: int, state: State) -> list[Any]:
        """Return random arguments; keys are unit vectors where the delta rule needs them."""
        q, k = torch.nn.functional.normalize(torch.randn(2, tokens, self.key_heads, self.key_dim), dim=-1).bfloat16()
        v = torch.randn(tokens, self.heads, self.value_dim).bfloat16()
        decay = -torch.rand(tokens, self.heads, *([self.key_dim] if self.decay == "key" else [])) / 4
        return [q, k, v, decay, torch.rand(tokens, self.heads) if self.delta else None, state, 1.0]


@dataclass(frozen=True)
class Scan:
    """Sizes of `selective_scan`."""

    channels: int
    size: int

    name = "selective_scan"

    @property
    def state(self) -> tuple[int, ...]:
        """Shape of a row's state."""
        return self.channels, self.size

    def arguments(self, tokens: int, state: State) -> list[Any]:
        """Return random arguments."""
        x, (b, c) = torch.randn(tokens, self.channels).bfloat16(), torch.randn(2, tokens, self.size).bfloat16()
        return [x, torch.rand(tokens, self.channels), -torch.rand(self.channels, self.size) * 4, b, c, state]


CASES: dict[str, Attention | Scan] = {
    "gated delta rule (Qwen3-Next)": Attention(32, 16, 128, 128, delta=True),
    "delta rule by key (Kimi Linear)": Attention(32, 32, 128, 128, delta=True, decay="key"),
    "lightning (MiniMax)": Attention(64, 64, 128, 128),
    "Mamba-2, 1 group (Granite 4)": Attention(64, 1, 128, 64),
    "Mamba-2, 8 groups (Nemotron-H)": Attention(64, 8, 128, 64),
    "Mamba 1 (Falcon Mamba)": Scan(8192, 16),
}


def sliced(arguments: list[Any], part: slice) -> list[Any]:
    """Return the arguments of some of the tokens; `a` of a scan has as many channels as it had."""
    tokens = len(arguments[0])
    return [one[part] if isinstance(one, Tensor) and len(one) == tokens else one for one in arguments]


def rows_of(slots: Tensor, fresh: bool, lengths: list[int]) -> StateRows:
    """Return rows of so many tokens with these slots."""
    return StateRows(slots, torch.full_like(slots, int(fresh)), np.cumsum([0, *lengths], dtype=np.int32))


def rate_of(memory: Tensor) -> float:
    """Return the bytes per second, read and written, at which memory is multiplied in place, slice after slice."""
    numbers = SLICE_BYTES // 4
    slices = cycle(memory.view(-1)[: memory.numel() // numbers * numbers].view(-1, numbers))
    return 2 * SLICE_BYTES / min(times_of(lambda: next(slices).mul_(0.999), 2 * SECONDS))


def decode(case: Attention | Scan, rows: int, memory: Tensor) -> list[float]:
    """Return the mean seconds of a step of a token for each of `rows` rows, of every replay of a program of many."""
    call, order = getattr(recurrent, case.name), torch.randperm(len(memory))
    several = order[: len(order) // rows * rows].view(-1, rows)
    steps = [case.arguments(rows, State(memory, rows_of(one, False, [1] * rows))) for one in several]
    program, _ = record(lambda: [call(*step) for step in steps][-1])
    return [seconds / len(steps) for seconds in times_of(program.run, SECONDS)]


def pieces_of(whole: list[Any], size: int) -> Iterator[list[Any]]:
    """Yield the arguments of a prompt's pieces of so many tokens."""
    tokens, memory = len(whole[0]), next(one.memory for one in whole if isinstance(one, State))
    for begin in range(0, tokens, size):
        part = slice(begin, min(begin + size, tokens))
        state = State(memory, rows_of(torch.tensor([0]), begin == 0, [part.stop - begin]))
        yield [state if isinstance(one, State) else one for one in sliced(whole, part)]


def prompts(case: Attention | Scan, tokens: int, memory: Tensor, torch_too: bool) -> dict[str, Callable[[], object]]:
    """Return calls of one prompt by form."""
    whole = case.arguments(tokens, State(memory, rows_of(torch.tensor([0]), True, [tokens])))
    native, form = getattr(recurrent, case.name), getattr(forms, case.name)
    calls: dict[str, Callable[[], object]] = {"native": lambda: native(*whole)}
    for name, count in (("native, pieces", PIECE), ("native, by token", 1)):
        pieces = list(pieces_of(whole, count))
        program, _ = record(lambda pieces=pieces: [native(*piece) for piece in pieces][-1])
        calls[name] = program.run
    if torch_too:
        calls["torch"] = lambda: form(*whole)
        if isinstance(case, Attention):
            calls["torch, by token"] = lambda: forms.linear_attention_by_token(*whole)
    return calls


def report(case: Attention | Scan, options: argparse.Namespace) -> None:
    """Print the lines of one case."""
    size = 4 * int(np.prod(case.state))
    memory = torch.randn(1, *case.state).expand(min(STATE_BYTES // size, MOST_SLOTS), *case.state).contiguous()
    rate = rate_of(memory)
    print(f"  states of {size / 1e6:.1f} MB, {len(memory)} of them; multiplied in place at {rate / 1e9:.1f} GB/s")
    for rows in options.decode:
        times = decode(case, rows, memory)
        found = 2 * rows * size / min(times)
        print(
            f"  {f'decode of {rows}':>24} {1e3 * min(times):>10.3f} {1e3 * median(times):>10.3f} "
            f"{found / 1e9:>7.1f} {100 * found / rate:>5.0f} %"
        )
    for tokens in options.prompt:
        for form, run in prompts(case, tokens, memory, not options.no_torch).items():
            times = times_of(run, SECONDS)
            print(f"  {f'{tokens} {form}':>24} {1e3 * min(times):>10.3f} {1e3 * median(times):>10.3f}")


def main() -> None:
    """Read the options and print a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name has one of these in it")
    parser.add_argument("--decode", nargs="*", type=int, default=[1, 8, 32])
    parser.add_argument("--prompt", nargs="*", type=int, default=[512, 2048])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--isa", help="cap of the instruction set")
    parser.add_argument("--no-torch", action="store_true", help="leave out the reference form")
    options = parser.parse_args()
    if not library.available():
        raise SystemExit(f"no native library: {library.reason()}")
    if options.isa:
        library.select_isa(options.isa)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"{library.isa()}, {options.threads} threads")
    print(f"  {'':>24} {'least ms':>10} {'median ms':>10} {'GB/s':>7} {'share':>7}")
    with torch.inference_mode():
        for name, case in CASES.items():
            if any(part.lower() in name.lower() for part in options.only):
                print(name)
                report(case, options)


if __name__ == "__main__":
    main()
