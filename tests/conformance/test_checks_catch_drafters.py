"""Each drafter check finds the drafter that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import DrafterSpec

SPEC = DrafterSpec(name="broken", impl="PKG.drafter:Drafter", api=2, summary="s", max_draft=4)
"""

# Repeats what followed the last token before.
DRAFTER = """
import time

import numpy as np

NOTHING = np.zeros(0, np.int32)


class Drafter:
    def __init__(self, ctx):
        self.most, self.read, self.first, self.kept = ctx.max_draft, {}, {}, {}

    def admit(self, row, prompt):
        {admit}
        self.first.pop(row, None)

    def propose(self, rows, known, tokens, out):
        counts = np.zeros(len(rows), np.int64)
        for place, (row, end) in enumerate(zip(rows.tolist(), known.tolist())):
            {slow}
            self.read[row] = tokens[row, : {end}]
            whole = self.draft(np.concatenate([self.kept.get(row, NOTHING), self.read[row]]))
            draft = whole[: out.shape[1]]
            out[place, : len(draft)] = draft
            counts[place] = {count}
        {propose}
        return {answer}

    def draft(self, known):
        before = np.flatnonzero(known[:-1] == known[-1])
        return known[before[-1] + 1 :] if len(before) else NOTHING

    def release(self, row):
        pass
"""

PARTS = {
    "admit": "pass",
    "slow": "pass",
    "end": "end",
    "count": "len(draft)",
    "propose": "pass",
    "answer": "counts",
}

CASES = {
    "guesses_keep_their_limits": {"count": "len(whole[: self.most])"},
    "asking_changes_nothing": {"admit": "prompt[:1] = 0"},
    "unknown_tokens_are_not_read": {"end": "end + (tokens[row, end] >= 0)"},
    "rows_do_not_mix": {"propose": "if len(rows) > 1: out[:], counts[:] = out[::-1].copy(), counts[::-1].copy()"},
    "rows_are_forgotten": {"admit": "self.kept[row] = self.read.get(row, NOTHING).copy()"},
    "pieces_do_not_matter": {"end": "self.first.setdefault(row, end)"},
    "guesses_are_quick": {"slow": "[time.process_time() for _ in range(4000 if end > 4000 else 0)]"},
}
"""Check -> what the drafter does that it finds."""


@pytest.fixture
def drafter(make_plugin):
    def make(**given: str):
        source = DRAFTER
        for key, value in {**PARTS, **given}.items():
            source = source.replace("{" + key + "}", value)
        return make_plugin("core.drafters", {"manifest": MANIFEST, "drafter": source})

    return make


def test_a_sound_drafter_passes(drafter):
    report = drafter().report("drafters", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_drafters(drafter, check):
    assert set(drafter(**CASES[check]).failing("drafters")) == {check}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"answer": "counts[1:]"}, "rows propose gives counts of shape"),
        ({"answer": "counts.tolist()"}, "due is an array of integers"),
        ({"answer": "counts + 0.0"}, "due is an array of integers"),
        ({"answer": "counts - 1"}, "where 0 to 1 are possible"),
        ({"propose": "out[counts > 0] = 50"}, "tokens are integers from 0 to 49"),
        ({"propose": "out[counts > 0] = -1"}, "tokens are integers from 0 to 49"),
    ],
)
def test_guesses_that_are_none_are_caught(drafter, wrong, told):
    assert told in drafter(**wrong).failing("drafters")["guesses_keep_their_limits"]


@pytest.mark.parametrize("name", ["rows", "known", "tokens"])
def test_writes_to_what_is_given_are_caught(drafter, name):
    told = drafter(propose=f"{name}[:] = {name}[::-1].copy()").failing("drafters")["asking_changes_nothing"]
    assert told == f"propose writes to {name}"
