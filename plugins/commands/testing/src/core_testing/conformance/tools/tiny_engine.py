"""A tiny model behind an executor: requests planned by core's scheduler, with steps launched ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from core_plugin_structured.parts import NAME, PARTS

from core.api.errors import CoreError
from core.api.executors import Executor
from core.api.participants import AllowedTokens, Participant
from core.api.steps import StepPlan, StepResult
from core.config.resolved import EngineConfig, Options, SelectOptions
from core.engine.opening import PlannedSetup
from core.engine.participants.stages import Stages
from core.engine.step_budget import Limits
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.plugins.kinds import kind_of
from core.selection.resolver import resolve
from core_testing.conformance.outcome import Unavailable, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.engine_driver import EngineDriver
from core_testing.conformance.tools.options import some_options
from core_testing.tinymodels import VOCAB_SIZE, reference_model, tiny_model

BLOCKS = 64
LONGEST = 64
_LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=32, max_chunk=16, max_model_len=LONGEST)


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
            executor: Executor = replace(subject, entry=entry).impl()(PlannedSetup.of(config))
            return executor
    raise Unavailable("no executor is installed")


def without_weights(subject: Subject) -> EngineConfig:
    """Return the same configuration with an empty directory for a checkpoint."""
    config = tiny_config(subject)
    empty = config.checkpoint.model_copy(update={"path": str(subject.folder())})
    return config.model_copy(update={"checkpoint": empty})


class OneTokenAStep(Participant):
    """Allows one token in each step, by a late part: `due(number)`."""

    name = NAME
    parts = PARTS

    def __init__(self) -> None: ...

    @staticmethod
    def due(number: int) -> int:
        """Return the token of a step."""
        return 3 + number % 5

    def plan(self, plan: StepPlan) -> None:
        """Announce the part, if anything is sampled."""
        if plan.samples.any():
            plan.late.append(self.name)

    def late(self, plan: StepPlan, alive: np.ndarray) -> AllowedTokens:
        """Allow this step's token in every row that samples."""
        rows = plan.rows[plan.samples]
        bits = np.zeros((len(rows), -(-VOCAB_SIZE // 32)), np.int32)
        bits[:, 0] = 1 << self.due(plan.number)
        return AllowedTokens(rows, bits)

    def collect(self, plan: StepPlan, result: StepResult) -> None:
        """Raise `Failed` if anything else was sampled."""
        due = self.due(plan.number)
        wrong = [token for token in result.tokens.tolist() if token != due]
        require(not wrong, f"step {plan.number} samples {wrong}, its late part allows {due} alone")


def greedy(
    executor: Executor,
    config: EngineConfig,
    prompts: Sequence[Sequence[int]],
    count: int,
    participants: Sequence[Participant] = (),
) -> list[list[int]]:
    """Generate `count` tokens after each prompt, all at once, with two steps launched ahead."""
    driver = EngineDriver(
        executor,
        _Arrival(),
        _LIMITS,
        blocks=BLOCKS,
        block_size=config.block_size,
        overlap=2,
        stages=Stages(participants),
    )
    for prompt in prompts:
        driver.add(prompt, count)
    while driver.busy:
        driver.advance()
    return list(driver.outputs.values())


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
