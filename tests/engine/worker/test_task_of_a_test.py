"""A task that neither generates nor pools, with the real worker: an engine has it by its name alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pytest

from core.api.runners import Enqueued
from core.api.sampling_params import SamplingParams
from core.api.tasks import Task
from core.api.wire import restored
from core.config.resolved import Options
from core.engine.client import open_sync
from core.engine.messages import Add
from core.engine.tasks import halves as engine_halves
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core.worker.runner import StepRunner
from core.worker.tasks import halves as worker_halves
from core.worker.tasks.base import OwnWorkerTask
from core_testing.tinymodels import tiny_llama

PROMPTS = [list(range(3, 40)), [5, 9, 14], [2] * 33]


@dataclass
class Sizes:
    """Place in the plan -> length of the last hidden state, and how many tokens of the prompt are even."""

    found: dict[int, list[float]]


class Measure(Task):
    """Ends with the length of the last token's hidden state, and how many tokens are even."""

    name = "measure"

    def settle(self, settler, step, alive, result, outputs):
        for place, numbers in restored(result.parts[self.name], Sizes, self.name).found.items():
            if alive[place]:
                settler.end(int(step.plan.rows[place]), outputs, numbers)


class MeasuringRunner(StepRunner):
    def _admit(self, new_rows): ...

    def _run(self, plan, result):
        inputs = self._build(plan)
        lengths = self._forward(inputs)[inputs.logit_indices].norm(dim=-1).tolist()
        places = np.flatnonzero(plan.samples).tolist()
        result.parts["measure"] = Sizes(
            {i: [length, self._even(plan, i)] for i, length in zip(places, lengths, strict=True)}
        )
        return Enqueued()

    def _even(self, plan, i):
        tokens = self.tokens[int(plan.rows[i]), : int(plan.starts[i] + plan.counts[i])]
        return int((tokens % 2 == 0).sum())


class MeasureWorker(OwnWorkerTask):
    def runner(self, setup):
        return MeasuringRunner(setup.model, setup.backend, setup.caches, setup.rows, setup.graphed)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture
def engine(checkpoint, monkeypatch):
    """Return a function that starts an engine of the task, with steps of at most so many tokens."""
    monkeypatch.setattr(engine_halves, "OWN", {**engine_halves.OWN, "measure": Measure})
    monkeypatch.setattr(worker_halves, "OWN", {**worker_halves.OWN, "measure": MeasureWorker})

    def start(chunk):
        options = Options(
            model=ModelOptions(model=checkpoint, dtype="float32"),
            kv=KVOptions(num_blocks=64),
            runtime=RuntimeOptions(threads=1),
            scheduler=SchedulerOptions(max_num_seqs=4, max_chunk=chunk),
        )
        return closing(open_sync(resolve(options).config.model_copy(update={"task": "measure"})))

    return start


def ends_of(engine, task="measure"):
    """Send every prompt; return handle -> the end of its request, and how many steps ran."""
    for handle, prompt in enumerate(PROMPTS):
        engine.send(Add(handle=handle, prompt=np.array(prompt, "<i4").tobytes(), params=SamplingParams(), task=task))
    ends, steps = {}, 0
    while answers := engine.step():
        for outputs in answers:
            assert not outputs.tokens
            ends.update((end.handle, end) for end in outputs.finished)
            steps = max(steps, outputs.stats.steps if outputs.stats else 0)
    return ends, steps


def test_a_task_of_its_own_runs_on_the_real_worker(engine):
    with engine(None) as whole, engine(8) as chunked:
        (first, one), (second, several) = ends_of(whole), ends_of(chunked)
    assert one < several
    for handle, prompt in enumerate(PROMPTS):
        (length, even), (again, same) = first[handle].parts["measure"], second[handle].parts["measure"]
        assert first[handle].reason == "stop" and length == pytest.approx(again, rel=1e-5) and length > 0
        assert even == same == sum(token % 2 == 0 for token in prompt)


def test_a_request_for_another_task_is_refused(engine):
    with engine(None) as started:
        ends, _ = ends_of(started, "generate")
    wrong = "CORE-E191 this engine's task is 'measure'; the request's is 'generate'"
    assert [(end.reason, end.error) for end in ends.values()] == [("error", wrong)] * len(PROMPTS)
