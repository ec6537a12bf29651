"""Each drafter check finds the drafter that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core.testing.conformance import Level

MANIFEST = """
from core.api import DrafterSpec

SPEC = DrafterSpec(name="broken", impl="PKG.drafter:Drafter", api=1, summary="s", max_draft=4)
"""

# Repeats what followed the last token before.
DRAFTER = """
class Drafter:
    def __init__(self, ctx):
        self.most, self.known = ctx.max_draft, {}

    def admit(self, row, prompt):
        {admit}
        self.known[row] = [*({kept}), *prompt.tolist()]

    def observe(self, rows, tokens):
        for row, fresh in zip(rows, tokens, strict=True):
            {observe}
            self.known[row] += fresh

    def propose(self, rows, budget):
        drafts = []
        for row in rows:
            draft = self.draft(self.known[row])
            {limit}
            drafts.append(draft)
            budget -= len(draft)
        {propose}
        return drafts

    def draft(self, known):
        before = [i for i, token in enumerate(known[:-1]) if token == known[-1]]
        return known[before[-1] + 1 :] if before else []

    def release(self, row):
        {release}
"""

PARTS = {
    "admit": "pass",
    "kept": "()",
    "observe": "pass",
    "limit": "draft = draft[: min(self.most, budget)]",
    "propose": "pass",
    "release": "del self.known[row]",
}

CASES = {
    "drafts_keep_their_limits": {"limit": "draft = draft[: self.most]"},
    "asking_changes_nothing": {"admit": "prompt[:1] = 0"},
    "rows_do_not_mix": {"propose": "if budget > 0 and len(rows) > 1: drafts.reverse()"},
    "rows_are_forgotten": {"release": "pass", "kept": "self.known.get(row, ())"},
    "pieces_do_not_matter": {"observe": "fresh = list(fresh[-1:])"},
}


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
    ("propose", "told"),
    [
        ("drafts = drafts[1:]", "drafts"),
        ("drafts = tuple(drafts)", "due is a list of lists"),
        ("drafts = [[50 for _ in one] for one in drafts]", "tokens are integers below 50"),
        ("drafts = [[float(t) for t in one] for one in drafts]", "tokens are integers below 50"),
        ("drafts = [one * 2 for one in drafts]", "max_draft is 1"),
    ],
)
def test_drafts_that_are_none_are_caught(drafter, propose, told):
    assert told in drafter(propose=propose).failing("drafters")["drafts_keep_their_limits"]
