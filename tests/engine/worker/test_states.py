"""Recurrent states in the worker: a slot for each row, fresh rows, fewer rows where memory is short, refusals."""

from __future__ import annotations

import logging
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from core import LLM, SamplingParams
from core.api.errors import EngineError, PluginError
from core.api.platform import MemorySnapshot
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.layers.states import StateMemory
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core.worker import states
from core.worker.states import plan_states
from core_testing.tinymodels import tiny_llama

ROWS = Path(__file__).parents[3] / "plugins" / "models" / "lfm2" / "tests" / "rows.py"
RNG = np.random.default_rng(4)
PROMPTS = [RNG.integers(3, 300, length).tolist() for length in (40, 7, 23, 40, 12)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
SETTINGS = {"dtype": "float32", "threads": 1, "max_model_len": 64, "num_blocks": 60, "block_size": 16}
SHARING = {**SETTINGS, "state_interval": 16}


@pytest.fixture(scope="module")
def lfm2(tmp_path_factory):
    spec = spec_from_file_location("rows_of_lfm2", ROWS)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    row = module.ROWS[0]
    return str(row.write(tmp_path_factory.mktemp("states") / "lfm2", **row.native))


def tokens(outputs):
    return [one.outputs[0].token_ids for one in outputs]


@pytest.fixture(scope="module")
def alone(lfm2):
    """Each prompt's answer, alone in a new engine."""
    found = []
    for prompt in PROMPTS:
        with LLM(lfm2, **SETTINGS) as llm:
            found += tokens(llm.generate([prompt], GREEDY))
    return found


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize("snapshots", [0, 3, 40])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_are_used_again_whatever_their_slots_hold(lfm2, alone, monkeypatch, rows, snapshots):
    """Slots that hold NaN at first, and states of others afterwards."""
    made = []

    def poisoned(shape, dtype, device, *, apart):
        made.append(torch.full(shape, float("nan"), dtype=dtype))
        return made[-1]

    monkeypatch.setattr(states, "zeros", poisoned)
    with LLM(lfm2, **SHARING, max_num_seqs=rows, state_snapshots=snapshots) as llm:
        for _ in range(2):
            assert tokens(llm.generate(PROMPTS, GREEDY)) == alone
    assert made and all(len(one) == rows + snapshots for one in made)


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize(
    ("kv", "note"),
    [
        ({"state_interval": 10}, "60 snapshots, one each 16 tokens"),
        ({"state_interval": 16, "state_snapshots": 5}, "5 snapshots, one each 16 tokens"),
        ({}, "no prefix caching: no request is longer than an interval of states"),
        ({"state_interval": 16, "state_snapshots": 0}, "no prefix caching: no snapshots of states are wanted"),
        ({"state_interval": 16, "prefix_caching": False}, "no prefix caching: it is switched off"),
    ],
)
def test_the_start_table_says_what_states_take(lfm2, kv, note):
    options = Options(
        model=ModelOptions(model=lfm2, dtype="float32", max_model_len=64),
        kv=KVOptions(num_blocks=61, block_size=16, **kv),
        runtime=RuntimeOptions(threads=1),
        scheduler=SchedulerOptions(max_num_seqs=7),
    )
    with closing(open_sync(resolve(options).config)) as engine:
        found = engine.ready.facts["states"]
        layers = engine._core.config.checkpoint.config["layer_types"].count("conv")
        hidden = engine._core.config.shape.hidden_size
    assert found == f"0.00 GiB, 7 requests of {layers * hidden * 2 * 4 / 2**20:.2f} MiB; {note}"


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize(("given", "cached"), [({}, 32), ({"state_interval": 32}, 32), ({"state_snapshots": 0}, 0)])
def test_equal_prefixes_are_shared_as_far_as_their_states_are_kept(lfm2, alone, given, cached):
    """Blocks of a prefix are not all that decides what follows it: without its states it is no prefix."""
    with LLM(lfm2, **{**SHARING, **given}) as llm:
        for expected in (0, cached):
            found = llm.generate([PROMPTS[0]], GREEDY)
            assert tokens(found) == alone[:1] and found[0].num_cached_tokens == expected


@pytest.mark.covers("ATTN-11")
def test_sequences_of_one_request_part_behind_a_snapshot(lfm2, alone):
    seeded = SamplingParams(temperature=1.0, max_tokens=8, ignore_eos=True, n=3, seed=5)
    with LLM(lfm2, **SETTINGS) as llm:
        due = [one.token_ids for one in llm.generate([PROMPTS[0]], seeded)[0].outputs]
    with LLM(lfm2, **SHARING) as llm:
        for _ in range(2):
            assert [one.token_ids for one in llm.generate([PROMPTS[0]], seeded)[0].outputs] == due
        assert llm.generate([PROMPTS[0]], GREEDY)[0].num_cached_tokens == 32
    assert len({tuple(one) for one in due}) > 1


@pytest.mark.covers("ATTN-11")
def test_a_conversation_goes_on_from_what_was_answered(lfm2):
    """States are kept while tokens are sampled, too."""
    long = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
    with LLM(lfm2, **SHARING) as llm:
        answer = tokens(llm.generate([PROMPTS[2]], long))[0]
        further = [*PROMPTS[2], *answer, 5, 6, 7]
        found = llm.generate([further], GREEDY)[0]
        assert found.num_cached_tokens == 32 < len(PROMPTS[2]) + len(answer)
    with LLM(lfm2, **SETTINGS) as llm:
        assert tokens(llm.generate([further], GREEDY)) == tokens([found])


@pytest.mark.covers("ATTN-11")
def test_snapshots_are_dropped_with_the_prefix_cache(lfm2, alone):
    with LLM(lfm2, **SHARING) as llm:
        llm.generate([PROMPTS[0]], GREEDY)
        llm.call("reset_prefix_cache")
        found = llm.generate([PROMPTS[0]], GREEDY)
        assert tokens(found) == alone[:1] and not found[0].num_cached_tokens


@pytest.mark.parametrize(
    ("select", "why"),
    [
        ({"drafter": "ngram"}, "a refused draft cannot be taken back"),
        ({"kv_connector": ["cpu_offload"]}, "recurrent states, which blocks do not hold"),
    ],
)
def test_what_cannot_follow_states_is_refused(lfm2, select, why):
    options = Options(model=ModelOptions(model=lfm2), select=SelectOptions(**select))
    with pytest.raises(PluginError, match=why):
        resolve(options)


def planned(free, *, rows=8, row_bytes=1000, unread=0, padding=0):
    config = SimpleNamespace(
        options=Options(scheduler=SchedulerOptions(max_num_seqs=rows), kv=KVOptions(memory_fraction=0.8))
    )
    memory = [StateMemory("a", (row_bytes // 4,), torch.float32)]
    return plan_states(config, memory, MemorySnapshot(total=10**9, free=free), unread=unread, padding=padding)


def test_states_take_at_most_half_of_what_is_free():
    assert planned(10**8).rows == 8
    assert planned(10_000).rows == 4
    assert planned(20_000, unread=10_000).rows == 4
    with pytest.raises(EngineError, match="CORE-E127"):
        planned(2_000)
    with pytest.raises(EngineError, match="CORE-E127"):
        planned(5_000, unread=4_000)


def test_a_slot_for_padding_is_one_row_less():
    plan = planned(10_000, padding=1)
    assert (plan.rows, plan.slots, plan.num_bytes) == (3, 4, 4000)
    with pytest.raises(EngineError, match="CORE-E127"):
        planned(3_000, padding=1)


def test_fewer_rows_run_where_states_do_not_fit(lfm2, alone, monkeypatch, caplog):
    plan, allocated, zeros = states.StatePlan, [], states.zeros

    def noted(shape, *given, **named):
        allocated.append(shape[0])
        return zeros(shape, *given, **named)

    monkeypatch.setattr(states, "zeros", noted)

    def short(config, memory, *given, **named):
        each = sum(one.num_bytes for one in memory)
        return plan(memory, 2, each)

    monkeypatch.setattr("core.worker.worker.plan_states", short)
    with caplog.at_level(logging.WARNING), LLM(lfm2, **SETTINGS, max_num_seqs=16) as llm:
        assert tokens(llm.generate(PROMPTS, GREEDY)) == alone
    assert "CORE-C211 2 requests run at once instead of 16" in caplog.text
    assert set(allocated) == {2}


def test_a_model_without_states_has_none_of_it(tmp_path):
    options = Options(
        model=ModelOptions(model=str(tiny_llama(tmp_path / "llama")), dtype="float32"),
        kv=KVOptions(num_blocks=20),
        runtime=RuntimeOptions(threads=1),
    )
    with closing(open_sync(resolve(options).config)) as engine:
        assert "states" not in engine.ready.facts
        worker = engine._core.executor._worker
        assert not worker._runner._rows.states and not worker._states.states
