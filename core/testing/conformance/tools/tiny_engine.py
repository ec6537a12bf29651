"""A tiny model behind an executor: requests planned by core's scheduler, with steps launched ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from core.api.errors import CoreError
from core.api.executors import Executor
from core.boot import resolve
from core.config.resolved import EngineConfig, KVOptions, ModelOptions, Options, RuntimeOptions, SelectOptions
from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher
from core.engine.loop import EngineLoop
from core.engine.messages import Add
from core.engine.prefix import PrefixCache
from core.engine.request import Request
from core.engine.rows import RowTable
from core.engine.sampling import SamplingParams
from core.engine.scheduler import Scheduler
from core.engine.step_budget import Limits
from core.plugins.kinds import kind_of
from core.testing.conformance.outcome import Unavailable
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.options import some_options
from core.testing.tinymodels import VOCAB_SIZE, reference_model, tiny_model

BLOCKS = 64
LONGEST = 64
_ROWS = 4


class _Arrival:
    """First come, first served."""

    def key(self, request: Any) -> tuple[int, ...]:
        """Return the arrival."""
        return (request.arrival,)

    def victim(self, running: Sequence[Any]) -> int:
        """Return the latest."""
        return len(running) - 1


def tiny_config(subject: Subject) -> EngineConfig:
    """Return the configuration of a tiny Llama with this plugin and whatever else is installed for the CPU.

    Raises:
        Unavailable: Something that an engine needs is not installed.
    """
    folder = subject.once("tiny model", lambda: tiny_model(subject.folder()))
    options = Options(
        model=ModelOptions(model=str(folder), dtype="float32", max_model_len=LONGEST),
        kv=KVOptions(num_blocks=BLOCKS),
        select=SelectOptions.model_validate({"platform": "cpu", **_asked(subject)}),
        runtime=RuntimeOptions(
            threads=1, start_timeout=100.0, plugin_options={subject.entry.name: some_options(subject)}
        ),
    )
    try:
        return subject.once("tiny engine", lambda: resolve(options, catalogue=subject.catalogue).config)
    except CoreError as error:
        raise Unavailable(f"a tiny model cannot be served with what is installed: {error}") from error


def _asked(subject: Subject) -> dict[str, str]:
    """Return the option that chooses this plugin, and an executor in this process if it is none itself."""
    name = f"{subject.entry.name}@{subject.entry.dist}"
    inproc = {"executor": "inproc"} if subject.catalogue.entries("core.executors") else {}
    return {**inproc, kind_of(subject.entry.group).option: name}


def executor_of(subject: Subject) -> Executor:
    """Return the executor of `tiny_config`, not started."""
    config = tiny_config(subject)
    planned = config.plan.one("core.executors")
    for entry in subject.catalogue.entries("core.executors"):
        if planned is not None and (entry.name, entry.dist) == (planned.name, planned.dist):
            executor: Executor = replace(subject, entry=entry).impl()(config)
            return executor
    raise Unavailable("no executor is installed")


def without_weights(subject: Subject) -> EngineConfig:
    """Return the same configuration with an empty directory for a checkpoint."""
    config = tiny_config(subject)
    empty = config.checkpoint.model_copy(update={"path": str(subject.folder())})
    return config.model_copy(update={"checkpoint": empty})


def greedy(executor: Executor, config: EngineConfig, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """Generate `count` tokens after each prompt, all at once, with two steps launched ahead."""
    pool, hasher = BlockPool(BLOCKS), BlockHasher(config.block_size)
    cache = PrefixCache(pool, hasher, enabled=True)
    rows = RowTable(_ROWS, LONGEST, config.block_size)
    scheduler = Scheduler(Limits(_ROWS, 32, 16, LONGEST), rows, cache, _Arrival(), ())
    loop = EngineLoop(scheduler, executor, 2)
    outputs: dict[int, list[int]] = {}
    for handle, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
        message = Add(
            handle=handle,
            prompt=np.array(prompt, "<i4").tobytes(),
            params=params,
            stop_ids=[],
            priority=0,
            cache_salt=None,
        )
        outputs[handle] = []
        scheduler.add(Request(message, handle + 1, hasher.root(None)))
    while loop.busy:
        done = loop.advance()
        if done is not None:
            handles, tokens = np.frombuffer(done.handles, "<i8"), np.frombuffer(done.tokens, "<i4")
            for handle, token in zip(handles.tolist(), tokens.tolist(), strict=True):
                outputs[handle].append(token)
    return [outputs[handle] for handle in sorted(outputs)]


def expected(prompts: Sequence[Sequence[int]], count: int, seed: int = 0) -> list[list[int]]:
    """Return the greedy tokens of transformers' model after each prompt."""
    import torch

    model = reference_model(seed=seed)
    found = []
    for prompt in prompts:
        tokens = list(prompt)
        with torch.no_grad():
            for _ in range(count):
                tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        found.append(tokens[len(prompt) :])
    return found


def some_prompts() -> list[list[int]]:
    """Return prompts of several lengths, one longer than a chunk."""
    rng = np.random.default_rng(3)
    return [rng.integers(3, VOCAB_SIZE, length).tolist() for length in (5, 21, 1)]
