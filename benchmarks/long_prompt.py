"""What a long prompt costs those who are being answered: gaps of 8 streams beside a prompt of 7,000 tokens.

    python benchmarks/long_prompt.py [--prompt 7000] [--max-itl-ms 0 200] [--rounds 1] [--threads 1] [--json FILE]

An engine as in a server for each value of `--max-itl-ms`, but in this process and without HTTP. They are measured in
turn: eight requests decode, then the prompt arrives, without and with `prompt_logprobs`. The clock, also that by which
the engine chooses its steps, is the processor time of this process, which other work on the machine changes little.
With one thread that is the time that an idle machine takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import ExitStack
from itertools import pairwise, product
from pathlib import Path

import numpy as np

from core.api.sampling_params import SamplingParams
from core.engine.core import EngineCore
from core.engine.loop import EngineLoop
from core.engine.messages import Add
from core.frontend.overrides import options_with
from core.selection.resolver import resolve

SETTLED = 20
"""Steps that the streams decode before the prompt arrives."""


class Engine:
    """An engine with `streams` requests that decode for as long as it is used."""

    def __init__(self, arguments: argparse.Namespace, itl: float) -> None:
        options = {"model": arguments.model, "dtype": "bfloat16", "threads": arguments.threads, "max_itl_ms": itl}
        sizes = {"max_model_len": 8192, "num_blocks": 1200}
        self.core = EngineCore.start(resolve(options_with(None, {**options, **sizes})).config)
        self.core.scheduler.spread = True  # as in a server
        depth = self.core.config.options.scheduler.overlap_depth
        self.core.loop = EngineLoop(self.core.scheduler, self.core.executor, depth, clock=time.process_time)
        self._random, self._added, self._ended = np.random.default_rng(0), 0, set[int]()
        for _ in range(arguments.streams):
            self._add(16, 8000)
        self._steps(SETTLED)

    def measure(self, tokens: int, *, scored: bool) -> dict[str, float]:
        """Return the figures of one prompt beside the streams, in milliseconds."""
        before = self._steps(SETTLED)
        handle, began = self._add(tokens, 1, prompt_logprobs=1 if scored else None), time.process_time()
        gaps = []
        while handle not in self._ended:
            gaps += self._steps(1)
        return {
            "decoding": statistics.median(before) * 1e3,
            "largest": max(gaps[1:]) * 1e3,  # the first step was chosen before the prompt arrived
            "first token": (time.process_time() - began) * 1e3,
            "steps": len(gaps) - 1,
        }

    def _add(self, tokens: int, output: int, prompt_logprobs: int | None = None) -> int:
        self._added += 1
        prompt = self._random.integers(1000, 20000, tokens).astype("<i4").tobytes()
        params = SamplingParams(temperature=0.0, max_tokens=output, prompt_logprobs=prompt_logprobs)
        self.core.handle(Add(handle=self._added, prompt=prompt, params=params, stop_ids=[]))
        return self._added

    def _steps(self, count: int) -> list[float]:
        """Return the seconds between the ends of further steps."""
        times = [time.process_time()]
        while len(times) <= count:
            if (outputs := self.core.loop.advance()) is not None:
                times.append(time.process_time())
                self._ended |= {finished.handle for finished in outputs.finished}
        return [after - before for before, after in pairwise(times)]


def main() -> None:
    """Measure, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--max-itl-ms", type=float, nargs="+", default=[0.0, 200.0])
    parser.add_argument("--prompt", type=int, default=7000, help="Tokens of the long prompt.")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[tuple[bool, float], list[dict[str, float]]] = {}
    with ExitStack() as held:
        engines = {itl: Engine(arguments, itl) for itl in arguments.max_itl_ms}
        for engine in engines.values():
            held.callback(engine.core.close)
        for _ in range(arguments.rounds):
            for scored, (itl, engine) in product((False, True), engines.items()):
                found.setdefault((scored, itl), []).append(engine.measure(arguments.prompt, scored=scored))
    medians = {
        case: {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        for case, rounds in found.items()
    }
    print(
        f"{'prompt_logprobs':>16} {'--max-itl-ms':>12} {'decoding':>9} {'largest':>9} {'first token':>12} {'steps':>6}"
    )
    for (scored, itl), figures in medians.items():
        cells = " ".join(f"{figures[name]:>{width}.0f}" for name, width in zip(figures, (9, 9, 12, 6), strict=True))
        print(f"{'yes' if scored else 'no':>16} {itl:>12g} {cells}")
    if arguments.json:
        report = [{"prompt_logprobs": scored, "max_itl_ms": itl, **medians[scored, itl]} for scored, itl in medians]
        arguments.json.write_text(json.dumps({"long_prompt": report}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
