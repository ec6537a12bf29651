"""The runner verifies drafts: whatever is proposed, every row gets the tokens that it gets without."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.api.participants import AllowedTokens, Parts, WorkerParticipant
from core.worker.participants.stages import WorkerStages
from core.worker.sampling.plugin_logits import PluginProcessor

from .conftest import BLOCK, VOCAB

STEPS = 14
ASKS = {
    "greedy": {},
    "seeded": {"temperature": 9.0, "seed": 7},
    "truncated": {"temperature": 9.0, "seed": 3, "top_k": 9, "top_p": 0.9},
    "penalties": {"repetition_penalty": 1.4, "frequency_penalty": 0.5, "presence_penalty": 0.3},
    "penalties, seeded": {"temperature": 9.0, "seed": 5, "frequency_penalty": 0.9},
    "bad words": {"bad_token_ids": [[a, b] for a in range(VOCAB) for b in range(a % 4, VOCAB, 4)]},
    "min tokens": {"min_tokens": 9},
    "log-probabilities": {"logprobs": 3},
    "bias": {"logit_bias": {3: 4.0, 5: -3.0}, "temperature": 9.0, "seed": 1},
}


class Answers(WorkerParticipant):
    """Proposes what follows, as the test knows it, with some tokens changed."""

    name = "answers"

    def __init__(self, pool, texts, share):
        self.pool, self.texts, self.share = pool, texts, share
        self.random = np.random.default_rng(0)
        self.told = {row: [] for row in texts}

    def drafts(self, rows, known, most):
        counts = np.minimum(self.random.integers(0, 9, len(rows)), most)
        for row, start, count in zip(rows.tolist(), known.tolist(), counts.tolist()):
            draft = np.resize(self.texts[row][start : start + count] or [0], count)
            wrong = self.random.random(count) > self.share
            self.pool[row, start : start + count] = torch.from_numpy(np.where(wrong, (draft + 1) % VOCAB, draft))
        return counts

    def sampled(self, step):
        for row, known, token in zip(step.rows.tolist(), step.known.tolist(), step.tokens.tolist()):
            if token >= 0:
                assert int(self.pool[row, known]) == token
                self.told[row].append(token)


class Drafted:
    """Rows of a `Bench` that run up to `most` drafts a step; their plans say `over` tokens too many."""

    def __init__(self, bench, most, over=0):
        self.bench, self.most, self.over = bench, most, over

    def plan(self, rows):
        bench, updates = self.bench, []
        first = [row for row in rows if row in bench.fresh]
        if first:
            plan = bench.plan(dict.fromkeys(first))
            return replace(plan, drafts=np.full(len(first), -1, np.int32))
        plan = bench.plan(dict.fromkeys(rows, 1))
        for i, row in enumerate(rows):
            more = -(-(int(plan.starts[i]) + self.over + 1 + self.most) // BLOCK) - len(bench.blocks[row])
            updates += [(row, len(bench.blocks[row]) + j, bench.free.pop()) for j in range(max(0, more))]
            bench.blocks[row] += [block for one, _, block in updates[len(updates) - max(0, more) :] if one == row]
        for row, column, block in updates:
            bench.rows.block_tables[0, row, column] = block
        drafts = np.full(len(rows), self.most, np.int32)
        beyond = {"starts": plan.starts + self.over, "output_counts": plan.output_counts + self.over}
        return replace(plan, **beyond, counts=1 + drafts, drafts=drafts, samples=np.ones(len(rows), bool))

    def step(self, rows):
        """Return row -> the tokens that it gained and the index of each in the result."""
        bench, plan = self.bench, self.plan(rows)
        result = bench.runner.execute(plan)
        counts = np.ones(len(plan.rows), int) if result.counts is None else result.counts
        gained = {}
        for row, count, end in zip(plan.rows.tolist(), counts.tolist(), np.cumsum(counts).tolist()):
            gained[row] = list(range(end - count, end))
            bench.computed[row] += count - 1
            bench.outputs[row] += count - 1
        return result, {row: result.tokens[places].tolist() for row, places in gained.items()}, gained


def described(bench, row, prompt, ask):
    params = ASKS[ask]
    bench.add(row, prompt, stop_ids=(2, 4, 6, 8, 10) if "min_tokens" in params else (), **params)


def text_of(make_bench, row, prompt, ask, steps=STEPS):
    """Return what a row gets by itself without drafts, and the log-probabilities."""
    bench = make_bench()
    described(bench, row, prompt, ask)
    results = [bench.step({row: None}) for _ in range(steps)]
    tokens = [int(result.tokens[0]) for result in results]
    return tokens, [result.logprobs.get(0) for result in results]


@pytest.mark.covers("SPEC-01")
@pytest.mark.parametrize("over", [0, 3])
@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("asks", [[ask] for ask in ASKS] + [list(ASKS)[:6], list(ASKS)[3:]])
def test_tokens_and_log_probabilities_are_those_without_drafts(make_bench, prompt, asks, most, over):
    prompts = {row: prompt(5 + 3 * row, row) for row in range(len(asks))}
    wanted = {row: text_of(make_bench, row, prompts[row], ask, STEPS + most) for row, ask in enumerate(asks)}
    bench = make_bench()
    for row, ask in enumerate(asks):
        described(bench, row, prompts[row], ask)
    texts = {row: [*prompts[row].tolist(), *wanted[row][0]] for row in wanted}
    half = Answers(bench.rows.tokens, texts, 0.8)
    bench.runner.stages = WorkerStages([half])
    drafted, got, steps = Drafted(bench, most, over), {row: [] for row in wanted}, 0
    scores = {row: [] for row in wanted}
    while any(len(tokens) < STEPS for tokens in got.values()):
        steps += 1
        result, gained, places = drafted.step([row for row in got if len(got[row]) < STEPS])
        assert not result.errors
        for row, tokens in gained.items():
            got[row] += tokens
            scores[row] += [result.logprobs.get(place) for place in places[row]]
    assert got == {row: wanted[row][0][: len(got[row])] for row in wanted}
    assert half.told == got
    assert steps < STEPS
    for row in wanted:
        for mine, theirs in zip(scores[row], wanted[row][1]):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert np.array_equal(mine.ids, theirs.ids) and np.allclose(mine.values, theirs.values, atol=1e-4)


def three_rows(make_bench, prompt, half, most=4, ask="greedy"):
    """Return a bench with three drafted rows, and what they get without drafts."""
    bench, prompts = make_bench(), {row: prompt(6, row) for row in range(3)}
    wanted = {row: text_of(make_bench, row, prompts[row], ask, STEPS + most)[0] for row in prompts}
    for row, ids in prompts.items():
        described(bench, row, ids, ask)
    half.pool, half.texts = bench.rows.tokens, {row: [*prompts[row].tolist(), *wanted[row]] for row in wanted}
    half.told = {row: [] for row in wanted}
    bench.runner.stages = WorkerStages([half])
    return bench, Drafted(bench, most), wanted


class Constant(Answers):
    """Proposes as many as it may, all of them right."""

    def __init__(self):
        super().__init__(None, {}, 1.0)

    def drafts(self, rows, known, most):
        for row, start, count in zip(rows.tolist(), known.tolist(), most.tolist()):
            self.pool[row, start : start + count] = torch.tensor(self.texts[row][start : start + count])
        return most


class Only(Constant):
    """Constrains row 1 to what it would take anyway, and knows that for its next token alone."""

    def allow(self, plan, late):
        known = len(self.told[1])
        bits = np.zeros(64, np.uint8)
        bits[self.texts[1][6 + known]] = 1
        return AllowedTokens(np.array([1], np.int32), np.packbits(bits, bitorder="little").view("<i4")[None])


def test_a_constrained_row_gains_the_token_that_its_mask_is_for(make_bench, prompt):
    half = Only()
    half.parts = Parts(late=bytes)
    bench, drafted, wanted = three_rows(make_bench, prompt, half)
    drafted.step([0, 1, 2])
    for _ in range(2):
        plan = drafted.plan([0, 1, 2])
        plan.late.append("answers")
        result = bench.runner.execute(plan, lambda: {"answers": b"now"})
        assert result.counts.tolist() == [5, 1, 5] and not result.errors
        for row, count in enumerate(result.counts.tolist()):
            bench.computed[row] += count - 1
            bench.outputs[row] += count - 1
    assert half.told == {row: wanted[row][: len(half.told[row])] for row in wanted}


def test_a_row_whose_logits_processor_does_not_know_drafts_runs_none(make_bench, prompt):
    half = Constant()
    bench, drafted, wanted = three_rows(make_bench, prompt, half)
    accepted = np.zeros(len(bench.rows.prompt_lens), bool)
    bench.sampler._one_position = [PluginProcessor("odd", None, accepted)]
    drafted.step([0, 1, 2])
    accepted[2] = True
    result, gained, _ = drafted.step([0, 1, 2])
    assert result.counts.tolist() == [5, 5, 1]
    assert gained == {row: wanted[row][1 : 1 + len(tokens)] for row, tokens in gained.items()}


class Broken(Constant):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def drafts(self, rows, known, most):
        return self.answer(most)


@pytest.mark.parametrize(
    ("answer", "faults"),
    [
        (lambda most: 1 // 0, ["drafts() raised ZeroDivisionError: integer division or modulo by zero"]),
        (lambda most: most[:-1], ["drafts() raised ValueError"]),
        (lambda most: most / 2, ["drafts() raised TypeError"]),
        (lambda most: None, []),
    ],
)
def test_who_cannot_propose_costs_drafts_and_no_request(make_bench, prompt, answer, faults):
    _, drafted, wanted = three_rows(make_bench, prompt, Broken(answer))
    drafted.step([0, 1, 2])
    result, gained, _ = drafted.step([0, 1, 2])
    assert gained == {row: wanted[row][1:2] for row in wanted}
    told = result.faults.get("answers", [])
    assert len(told) == len(faults) and all(map(str.startswith, told, faults))


def test_what_comes_before_a_failure_inside_a_draft_is_kept(make_bench, prompt):
    """Nothing may follow the fourth token of row 1. Alone, the request gets that and then an error."""
    half = Constant()
    bench, drafted, wanted = three_rows(make_bench, prompt, half, ask="seeded")
    last = wanted[1][3]
    assert last not in wanted[1][:3]
    bench.add(1, prompt(6, 1), **ASKS["seeded"], bad_token_ids=[[last, token] for token in range(VOCAB)])
    drafted.step([0, 1])
    result, gained, _ = drafted.step([0, 1])
    assert not result.errors and gained == {0: wanted[0][1:6], 1: wanted[1][1:4]}
    half.told[1] = []
    result = bench.runner.execute(drafted.plan([1]))
    assert list(result.errors) == [0] and result.tokens.tolist() == [-1]


def test_prompts_and_drafted_rows_share_a_step(make_bench, prompt):
    half = Constant()
    bench, drafted, wanted = three_rows(make_bench, prompt, half)
    drafted.step([0, 1])
    late, chunk = drafted.plan([0, 1]), bench.plan({2: 4})
    result = bench.runner.execute(joined(late, chunk, drafts=[4, 4, -1]))
    assert result.counts.tolist() == [5, 5]
    assert result.tokens.tolist() == [*wanted[0][1:6], *wanted[1][1:6]]
    result = bench.runner.execute(replace(bench.plan({2: None}), drafts=np.array([-1], np.int32)))
    assert result.tokens.tolist() == wanted[2][:1] and result.counts is None


def joined(first, second, drafts):
    """Return one plan of two; only the second has new blocks."""
    arrays = ("rows", "starts", "counts", "samples", "output_counts")
    both = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in arrays}
    return replace(second, **both, drafts=np.array(drafts, np.int32))
