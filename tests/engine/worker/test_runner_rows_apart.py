"""Failures, log-probabilities and connectors: what belongs to one row stays with it."""

import numpy as np
import pytest
import torch

from core.worker.participants.connectors import ConnectorWorkerHalf
from core.worker.participants.stages import WorkerStages
from core.worker.sampling import prompt as prompt_module
from core.worker.transfers import Transfers
from core_testing.fakedevice.queue import LateQueue


@pytest.mark.covers("PLAT-09")
@pytest.mark.parametrize("params", [{}, {"temperature": 0.7, "top_p": 0.9, "seed": 1, "logprobs": 1}])
def test_a_numerical_failure_stays_in_its_row(make_bench, params):
    healthy, poisoned = np.arange(1, 8), np.array([3, 60, 5])
    clean = make_bench()
    clean.add(0, healthy, **params)
    wanted = clean.generate(0, 3)
    bench = make_bench(poison=60)
    bench.add(1, poisoned, **params)
    bench.add(0, healthy, **params)
    first = bench.step({1: None, 0: None})
    assert list(first.errors) == [0]
    assert "CORE-E121" in first.errors[0]
    assert first.tokens.tolist() == [-1, wanted[0]]
    assert set(first.logprobs) <= {1}
    second = bench.step({1: None, 0: None})
    assert second.errors and second.tokens.tolist() == [-1, wanted[1]]


@pytest.mark.parametrize("params", [{}, {"temperature": 0.7, "top_p": 0.9, "seed": 1, "logprobs": 1}])
def test_a_numerical_failure_on_a_device_is_known_when_its_result_is(make_bench, params):
    """Rows and blocks are other requests' by then: what failed is told by where it was when it ran."""
    clean = make_bench()
    clean.add(0, np.arange(1, 8), **params)
    wanted = clean.generate(0, 2)
    bench = make_bench(poison=60, transfers=Transfers(torch.device("cpu"), True, LateQueue(), areas=3))
    bench.add(1, np.array([3, 60, 5]), **params)
    bench.add(0, np.arange(1, 8), **params)
    first, second = (bench.runner.begin(bench.plan({1: None, 0: None})) for _ in range(2))
    left = bench.blocks[1][0]
    bench.rows.block_tables[:, 1] = 0
    for pending, token in ((first, wanted[0]), (second, wanted[1])):
        result = pending.result()
        assert list(result.errors) == [0] and "CORE-E121" in result.errors[0]
        assert result.tokens.tolist() == [-1, token] and set(result.logprobs) <= {1}
    bench.preempt(1)
    bench.free.append(left)
    bench.add(2, [7])
    assert not bench.step({2: None}).errors and bench.blocks[2] == [left]


def test_blocks_of_a_failed_row_do_not_hurt_their_next_owner(make_bench):
    bench = make_bench(poison=60)
    bench.add(0, [60, 60, 60])
    assert bench.step({0: None}).errors
    assert not all(cache.isfinite().all() for cache in bench.caches)
    left = bench.blocks[0][0]
    bench.preempt(0)
    bench.free.append(left)
    bench.add(1, [7])
    assert not bench.step({1: None}).errors
    assert bench.blocks[1] == [left]


def test_a_prefix_of_a_failed_row_fails_its_readers_too(make_bench):
    bench = make_bench(poison=60)
    bench.add(0, [60, 1, 2, 3])
    assert bench.step({0: None}).errors
    bench.add(1, [60, 1, 2, 3, 4])
    bench.blocks[1], bench.computed[1] = [], 4
    bench.free += [bench.free.pop(0), bench.blocks[0][0]]
    plan = bench.plan({1: None})
    assert plan.blocks[0].blocks.tolist()[0] == bench.blocks[0][0] and plan.num_tokens == 1
    assert bench.runner.execute(plan).errors


def test_a_row_that_excludes_every_token_fails_alone(bench, prompt):
    bench.add(0, prompt(4), allowed_token_ids=[5], bad_token_ids=[[5]])
    bench.add(1, prompt(4), allowed_token_ids=[5])
    result = bench.step({0: None, 1: None})
    assert "CORE-E122" in result.errors[0]
    assert result.tokens.tolist() == [-1, 5]


def test_no_stop_token_before_min_tokens(bench, prompt):
    bench.add(0, prompt(5), stop_ids=(7,), min_tokens=2, logit_bias={7: 90.0})
    tokens = bench.generate(0, 4)
    assert tokens[0] != 7 and tokens[1] != 7
    assert tokens[2:] == [7, 7]


def dense_logprobs(bench, ids):
    """Log-probabilities after every position, from one prefill of a fresh bench."""
    bench.add(0, ids)
    plan = bench.plan({0: None})
    seen = []
    project = bench.model.logits
    forward = bench.model.forward

    def spy(step):
        seen.append(forward(step))
        return seen[-1]

    bench.model.forward = spy
    bench.runner.execute(plan)
    return project(seen[0]).log_softmax(-1)


@pytest.mark.covers("PLAT-09")
@pytest.mark.parametrize("chunks", [(11,), (4, 7), (1, 1, 9), (10, 1)])
@pytest.mark.parametrize("positions", [256, 3])
def test_prompt_logprobs_come_chunk_by_chunk(make_bench, prompt, chunks, positions, monkeypatch):
    monkeypatch.setattr(prompt_module, "CHUNK", positions)
    ids = prompt(11)
    wanted = dense_logprobs(make_bench(), ids)
    bench = make_bench()
    bench.add(3, ids, prompt_logprobs=2)
    tables = [bench.step({3: chunk}).prompt_logprobs.get(0) for chunk in chunks]
    tables = [table for table in tables if table is not None]
    got = np.concatenate([table.ids for table in tables])
    values = np.concatenate([table.values for table in tables])
    ranks = np.concatenate([table.ranks for table in tables])
    assert got.shape == (10, 3)
    assert got[:, 0].tolist() == ids[1:].tolist()
    expected = wanted[:10].gather(1, torch.from_numpy(ids[1:, None]))
    np.testing.assert_allclose(values[:, 0], expected[:, 0], atol=1e-4)
    assert got[:, 1:].tolist() == wanted[:10].topk(2).indices.tolist()
    assert ranks.tolist() == ((wanted[:10] > expected).sum(1) + 1).tolist()


def test_a_recomputed_prompt_is_not_scored_twice(bench, prompt):
    bench.add(0, prompt(10), prompt_logprobs=0)
    assert bench.step({0: 6}).prompt_logprobs[0].ids.shape == (6, 1)
    bench.preempt(0)
    assert 0 not in bench.step({0: 4}).prompt_logprobs
    assert bench.step({0: 6}).prompt_logprobs[0].ids[:, 0].tolist() == prompt(10)[7:].tolist()
    bench.preempt(0)
    assert not bench.step({0: None}).prompt_logprobs


def test_the_next_owner_of_a_row_is_scored_from_its_beginning(bench, prompt):
    bench.add(0, prompt(10), prompt_logprobs=0)
    bench.step({0: None})
    bench.preempt(0)
    bench.add(0, prompt(6, 1), prompt_logprobs=0)
    assert bench.step({0: None}).prompt_logprobs[0].ids[:, 0].tolist() == prompt(6, 1)[1:].tolist()


def test_a_prompt_of_one_token_has_nothing_to_score(bench):
    bench.add(0, [4], prompt_logprobs=1)
    assert not bench.step({0: None}).prompt_logprobs


def test_a_poisoned_prompt_fails_while_it_is_scored(make_bench):
    bench = make_bench(poison=60)
    bench.add(0, [1, 60, 2, 3, 4], prompt_logprobs=1)
    result = bench.step({0: 3})
    assert "prompt" in result.errors[0] and not result.prompt_logprobs


class Store:
    """A connector that notes what it is told."""

    def __init__(self):
        self.calls = []

    def begin(self, message):
        self.calls.append(message)

    def end(self):
        self.calls.append("end")
        return b"saved" if len(self.calls) > 2 else None

    def close(self):
        self.calls.append("close")


def fail(*given):
    raise OSError("the store is away")


def attached(bench, **methods):
    """Return a store with these methods that takes part in a bench's steps."""
    store = Store()
    vars(store).update(methods)
    bench.runner.stages = WorkerStages([ConnectorWorkerHalf("disk", store)], {"disk": "KV connector 'disk' (acme 1.0)"})
    return store


@pytest.mark.parametrize(
    ("methods", "lost", "told"),
    [
        ({"begin": fail}, [7, 8, 9], "begin() raised OSError: the store is away"),
        ({"begin": lambda message: [8]}, [8], "1 of 3 blocks could not be loaded"),
        ({"begin": lambda message: iter({9, 7})}, [7, 9], "2 of 3 blocks could not be loaded"),
        ({"begin": lambda message: [8, 1]}, [7, 8, 9], "names blocks that were not to be loaded: [1]"),
        ({"begin": lambda message: "no"}, [7, 8, 9], "begin() raised TypeError"),
        ({"end": fail}, [], "end() raised OSError: the store is away"),
        ({"end": lambda: "done"}, [], "end() raised TypeError"),
        ({}, [], None),
    ],
)
def test_what_a_connector_does_not_load_is_told_and_holds_zeros(make_bench, prompt, methods, lost, told):
    bench, alone = make_bench(), make_bench()
    attached(bench, **methods)
    for cache in bench.caches:
        cache[7:10] = float("nan")
    for one in (bench, alone):
        one.add(0, prompt(4))
    plan = bench.plan({0: None}, parts={"disk": b"load"})
    plan.loads = {"disk": [7, 8, 9], "elsewhere": [11]}
    result = bench.runner.execute(plan)
    assert sorted(result.lost) == [*lost, 11]  # nobody here fills what is ordered elsewhere
    assert [place for place in (7, 8, 9) if not bench.caches[0][place].isnan().any()] == lost
    assert all(not cache[block].any() for cache in bench.caches for block in lost)
    assert told in result.faults["disk"][0] if told else not result.faults
    assert result.tokens.tolist() == alone.step({0: None}).tokens.tolist() and not result.errors


def test_without_a_message_nothing_is_loaded(bench, prompt):
    attached(bench)
    bench.add(0, prompt(4))
    plan = bench.plan({0: None})
    plan.loads = {"disk": [7]}
    assert bench.runner.execute(plan).lost == [7]


def test_a_step_that_could_not_begin_has_no_end(bench, prompt):
    store = attached(bench, begin=fail)
    bench.add(0, prompt(4))
    bench.step({0: None}, parts={"disk": b"load"})
    assert store.calls == []
    bench.step({0: None})
    assert store.calls == ["end"]


@pytest.mark.parametrize("method", [None, fail])
def test_a_connector_that_is_dismissed_is_closed_and_takes_part_no_more(bench, prompt, caplog, method):
    store = attached(bench, **({"close": method} if method else {}))
    bench.add(0, prompt(4))
    plan = bench.plan({0: None}, parts={"disk": b"load"})
    plan.leaving = ["disk", "elsewhere"]
    assert bench.runner.execute(plan).parts == {}
    assert store.calls == ([] if method else ["close"]) and bench.runner.stages._halves == ()
    assert ("CORE-P161 KV connector 'disk' (acme 1.0): close() raised OSError" in caplog.text) == (method is not None)


@pytest.mark.covers("KV-01")
def test_a_connector_acts_around_the_forward_pass(bench, prompt):
    store = attached(bench)
    bench.add(0, prompt(4))
    assert bench.step({0: None}).parts == {}
    assert bench.step({0: None}, parts={"disk": b"load", "other": b"x"}).parts == {"disk": b"saved"}
    assert store.calls == ["end", b"load", "end"]
