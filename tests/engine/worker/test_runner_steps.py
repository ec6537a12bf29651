"""The runner over many shapes of step: what a request gets does not depend on how its work was cut."""

import numpy as np
import pytest
import torch

from core.api.participants import Parts, WorkerParticipant
from core.worker.participants.stages import WorkerStages


def alone(make_bench, prompt, steps, **params):
    bench = make_bench()
    bench.add(0, prompt, **params)
    return bench.generate(0, steps)


@pytest.mark.covers("ENG-01", "ATTN-03")
@pytest.mark.parametrize("chunks", [(13,), (1, 12), (4, 4, 5), (5, 3, 1, 4), (12, 1)])
def test_a_chunked_prompt_gives_the_tokens_of_a_whole_one(make_bench, prompt, chunks):
    wanted = alone(make_bench, prompt(13), 4)
    bench = make_bench()
    bench.add(2, prompt(13))
    for chunk in chunks[:-1]:
        assert len(bench.step({2: chunk}).tokens) == 0
    got = [int(bench.step({2: chunks[-1]}).tokens[0]), *bench.generate(2, 3)]
    assert got == wanted


def test_mixed_batches_of_prefill_chunk_and_decode(make_bench, prompt):
    prompts = {0: prompt(5, 1), 1: prompt(19, 2), 3: prompt(1, 3), 5: prompt(9, 4)}
    wanted = {row: alone(make_bench, ids, 5) for row, ids in prompts.items()}
    bench, got = make_bench(), {row: [] for row in prompts}
    for row, ids in prompts.items():
        bench.add(row, ids)

    def step(counts):
        plan = bench.plan(counts)
        tokens = iter(bench.runner.execute(plan).tokens)
        for row, sampled in zip(plan.rows, plan.samples):
            if sampled:
                got[int(row)].append(int(next(tokens)))

    step({0: None, 1: 7})
    step({1: 8, 0: None, 3: None})
    step({5: 4, 3: None, 1: None, 0: None})
    step({0: None, 1: None, 5: None})
    while any(len(tokens) < 5 for tokens in got.values()):
        step({row: None for row, tokens in got.items() if len(tokens) < 5})
    assert got == wanted


@pytest.mark.covers("PLAT-09", "ENG-02")
def test_plans_made_before_results_are_read_give_the_same_tokens(make_bench, prompt):
    wanted = alone(make_bench, prompt(6), 6)
    bench = make_bench()
    bench.add(0, prompt(6))
    plans = [bench.plan({0: None}) for _ in range(6)]
    assert [int(bench.runner.execute(plan).tokens[0]) for plan in plans] == wanted


@pytest.mark.covers("PLAT-09")
def test_a_row_is_reused_without_a_trace(make_bench, prompt):
    wanted = alone(make_bench, prompt(7, 5), 5)
    bench = make_bench()
    bench.add(0, prompt(20, 9), repetition_penalty=3.0, logit_bias={int(wanted[0]): -50.0}, logprobs=2, min_tokens=2)
    bench.generate(0, 3)
    bench.preempt(0)
    bench.add(0, prompt(7, 5))
    assert bench.generate(0, 5) == wanted


def test_a_preempted_request_resumes_from_the_token_pool(make_bench, prompt):
    wanted = alone(make_bench, prompt(9), 6)
    bench = make_bench()
    bench.add(1, prompt(9))
    got = bench.generate(1, 3)
    bench.preempt(1)
    bench.step({1: 5})
    got += bench.generate(1, 3)
    assert got == wanted


def test_a_prefix_in_shared_blocks_is_not_computed_again(make_bench, prompt):
    bench = make_bench()
    bench.add(0, prompt(8))
    bench.step({0: None})
    longer = np.concatenate([prompt(8), prompt(5, 1)])
    bench.add(1, longer)
    bench.blocks[1], bench.computed[1] = list(bench.blocks[0][:2]), 8
    plan = bench.plan({1: None})
    (update,) = plan.blocks
    update.starts[0], update.blocks, update.offsets = 0, np.array(bench.blocks[1], np.int32), np.array([0, 4], np.int32)
    assert plan.num_tokens == 5
    assert int(bench.runner.execute(plan).tokens[0]) == alone(make_bench, longer, 1)[0]


def test_the_batch_that_attention_sees(bench, prompt):
    bench.add(0, prompt(9))
    bench.add(4, prompt(3, 1))
    bench.step({0: None})
    bench.step({4: None, 0: None})
    batch = bench.model.batches[-1]
    assert batch.query_starts.tolist() == [0, 3, 4]
    assert batch.seq_lens.tolist() == [3, 10]
    assert (batch.max_query_len, batch.max_seq_len) == (3, 10)
    blocks = bench.blocks
    assert batch.block_tables.tolist() == [[blocks[4][0], 0, 0], blocks[0]]
    slots = [blocks[4][0] * 4, blocks[4][0] * 4 + 1, blocks[4][0] * 4 + 2, blocks[0][2] * 4 + 1]
    assert batch.slots.tolist() == slots
    assert (batch.query_starts.dtype, batch.seq_lens.dtype) == (np.int32, np.int32)
    assert (batch.block_tables.dtype, batch.slots.dtype) == (torch.int32, torch.int64)


def test_tables_left_by_an_earlier_life_read_as_zero(bench, prompt):
    bench.add(0, prompt(16))
    bench.add(1, prompt(14, 1))
    bench.step({0: None})
    bench.preempt(0)
    bench.step({0: 4, 1: None})
    assert bench.model.batches[-1].block_tables[0].tolist() == [bench.blocks[0][0], 0, 0, 0]


def test_a_new_owner_cannot_reach_the_blocks_of_the_last(bench, prompt):
    bench.add(0, prompt(16))
    bench.step({0: None})
    assert bench.rows.block_tables[0, 0, :4].all()
    bench.preempt(0)
    bench.add(0, prompt(2))
    bench.step({0: None})
    assert bench.rows.block_tables[0, 0].tolist() == [bench.blocks[0][0]] + [0] * 11


def test_a_step_without_rows_still_serves_participants(bench):
    class Spy(WorkerParticipant):
        name, parts, seen = "store", Parts(plan=bytes), []

        def __init__(self): ...

        def begin(self, plan):
            self.seen.append(("begin", plan.parts))

        def end(self, plan, result):
            self.seen.append(("end", result.number))

    bench.runner.stages = WorkerStages([Spy()])
    result = bench.step({}, parts={"store": b"load"})
    assert Spy.seen == [("begin", {"store": b"load"}), ("end", result.number)]
    assert len(result.tokens) == 0
