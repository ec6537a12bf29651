"""Tasks: a choice that follows from facts alone, limits that its requests fit into, halves that go together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from core.api.descriptors import TaskSpec
from core.api.errors import ConfigError, PluginError
from core.api.fronts import TaskFront, TaskFrontSetup
from core.api.kinds import Chosen
from core.api.runners import WorkerTask
from core.api.shapes import ModelShape, PoolingShape
from core.api.tasks import StepLimits, Task, TaskChoice, TaskFacts, TaskSetup
from core.api.weights import CheckpointInfo
from core.config.fields import SECRETS
from core.engine.step_budget import Limits
from core.frontend.front_plugins import DRIVEN
from core.frontend.inputs import InputProcessor
from core.options.model import ModelOptions
from core.plugins.contracts import check_contract
from core_testing.conformance.outcome import Failed, Unavailable, checks, require
from core_testing.conformance.samples import OptionsSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.options import every_options
from core_testing.conformance.tools.tokenizers import tokenizer_of

_POSITIONS, _ROWS = 256, 4
_BUDGETS = (16, 64, 1024)
_SETTINGS: tuple[dict[str, Any], ...] = ({}, {"runner": "pooling"}, {"runner": "generate"})


@dataclass(frozen=True)
class _Taken:
    """A model that the task takes, and what it is made with."""

    facts: TaskFacts
    choice: TaskChoice

    @property
    def setup(self) -> TaskSetup:
        return TaskSetup(self.choice.data, self.facts.options)


def halves_fit_the_contract(subject: Subject) -> None:
    """Every half is what its base class says, and the function that chooses can be called as core calls it."""
    spec = subject.spec(TaskSpec)
    for path in (spec.impl, spec.worker_impl, spec.front_impl, spec.choose):
        try:
            check_contract(subject.entry, spec, path, subject.load(path))
        except PluginError as error:
            raise Failed(error.message) from error
    half = subject.load(spec.impl)
    require(half.name == subject.entry.name, f"its engine half is called '{half.name}'")
    require(not half.decodes, "its engine half decodes: tokens that follow from each other are core's own task")
    require(isinstance(subject.load(spec.worker_impl)(), WorkerTask), "its worker half is no WorkerTask")


def what_it_asks_core_for_is_there(subject: Subject) -> None:
    """Options that it goes by, and kinds that it drives, are those that core leaves it."""
    spec = subject.spec(TaskSpec)
    unknown = [one for one in spec.settings if one not in ModelOptions.model_fields or f"model.{one}" in SECRETS]
    require(not unknown, f"there is no option {', '.join(unknown)} of the model that it could go by")
    closed = sorted(set(spec.drives) - DRIVEN)
    require(not closed, f"tasks drive {', '.join(sorted(DRIVEN))}, not {', '.join(closed)}")


def choices_follow_from_facts_alone(subject: Subject) -> None:
    """Asked twice it says the same, of no model more than a choice or a `ConfigError`, in data that JSON has."""
    choose = subject.load(subject.spec(TaskSpec).choose)
    for facts in _every_facts(subject):
        found, again = (_asked(choose, facts) for _ in range(2))
        require(found == again, f"asked twice it says {found} and {again}")
        if isinstance(found, str | None):
            continue
        require(isinstance(found, TaskChoice), f"choose() gave a {type(found).__name__}, not a TaskChoice")
        require(found.context > 0, f"its longest request has {found.context} tokens")
        try:
            same = json.loads(json.dumps(dict(found.data))) == found.data
        except (TypeError, ValueError) as error:
            raise Failed(f"its data cannot be written as JSON: {error}") from error
        require(same, "its data is another one once it was written as JSON: tuples become lists, keys become texts")


def limits_let_its_requests_run(subject: Subject) -> None:
    """Under whatever limits, a prompt that runs in one step fits into one, and rows and lengths stay as they were."""
    kind = subject.load(subject.spec(TaskSpec).impl)
    for taken in _every_taken(subject):
        task: Task = kind(taken.setup)
        for budget in _BUDGETS:
            given = Limits(_ROWS, budget, max_chunk=budget, max_model_len=_POSITIONS, soft_budget=True)
            found = task.limits(given)
            require(isinstance(found, StepLimits), f"limits() gave a {type(found).__name__}")
            kept = (found.max_num_seqs, found.max_model_len) == (_ROWS, _POSITIONS)
            require(kept, "limits() changes how many requests run, or how long they may be")
            longest = task.longest_chunk(found)
            most = found.max_num_batched_tokens + found.slack
            require(0 < longest <= most, f"its longest chunk has {longest} tokens, a step {most}")
            whole = not task.whole_prompts or longest >= _POSITIONS
            require(whole, f"prompts run in one step, and one of {_POSITIONS} tokens fits into none of {budget}")


def parts_travel(subject: Subject) -> None:
    """The types of what halves send each other can be read from bytes."""
    kind = subject.load(subject.spec(TaskSpec).impl)
    types = {"Task.part": kind.part}
    for taken in _every_taken(subject):
        types["TaskFront.part"] = _front(subject, taken).part
    for name, one in types.items():
        try:
            msgspec.msgpack.Decoder(Any if one is None else one)
        except TypeError as error:
            raise Failed(f"{name}, {one!r}, cannot be read from bytes: {error}") from error


def its_front_half_says_what_requests_get(subject: Subject) -> None:
    """The front half is a `TaskFront`, whose `gives` completes the refusal of a generation."""
    for taken in _every_taken(subject):
        front = _front(subject, taken)
        require(isinstance(front, TaskFront), f"the front half is a {type(front).__name__}")
        require(bool(front.gives) and front.gives != TaskFront.gives, "its `gives` does not say what requests get")


CHECKS = checks(
    halves_fit_the_contract,
    what_it_asks_core_for_is_there,
    choices_follow_from_facts_alone,
    limits_let_its_requests_run,
    parts_travel,
    its_front_half_says_what_requests_get,
)


def _asked(choose: Any, facts: TaskFacts) -> Any:
    try:
        return choose(facts)
    except ConfigError as error:
        return error.code
    except Exception as error:
        raise Failed(f"choose() raised {type(error).__name__}: {error}") from error


def _front(subject: Subject, taken: _Taken) -> Any:
    tokenizer = tokenizer_of(subject)
    inputs = InputProcessor(tokenizer, vocab_size=tokenizer.vocab_size, max_model_len=_POSITIONS)
    facts = taken.facts
    setup = TaskFrontSetup("kit", {}, facts.shape, inputs, taken.choice.data, facts.options, _nobody)
    try:
        return subject.load(subject.spec(TaskSpec).front_impl)(setup)
    except Exception as error:
        raise Failed(f"its front half cannot be made: {type(error).__name__}: {error}") from error


def _nobody(group: str, context: Any) -> tuple[Chosen, ...]:
    return ()


def _every_taken(subject: Subject) -> list[_Taken]:
    """Return the models that it takes. Raises `Unavailable` if it takes none."""
    choose = subject.load(subject.spec(TaskSpec).choose)
    asked = [(facts, _asked(choose, facts)) for facts in _every_facts(subject)]
    found = [_Taken(facts, choice) for facts, choice in asked if isinstance(choice, TaskChoice)]
    if not found:
        raise Unavailable(subject.wants(OptionsSample, "it takes none of the kit's models as they are asked for"))
    return found


def _every_facts(subject: Subject) -> Iterator[TaskFacts]:
    """Yield models that generate, embed and classify, under different wishes."""
    spec = subject.spec(TaskSpec)
    sizes = dict.fromkeys(("num_layers", "num_heads", "num_kv_heads"), 2)
    for pooling in (None, PoolingShape(bidirectional=True), PoolingShape(task="classify", labels=("a", "b"))):
        shape = ModelShape(
            vocab_size=64, max_positions=_POSITIONS, hidden_size=16, head_dim=8, pooling=pooling, **sizes
        )
        checkpoint = CheckpointInfo(path="/nowhere", format="kit", architecture="Kit", config={})
        for wishes in _SETTINGS:
            options = ModelOptions.model_validate(wishes)
            settings = {name: getattr(options, name) for name in spec.settings}
            for own in every_options(subject):
                yield TaskFacts(checkpoint, shape, settings, own)
