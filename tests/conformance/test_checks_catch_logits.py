"""Each check of logits processors finds the processor that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import LogitsSpec

SPEC = LogitsSpec(
    name="broken", impl="PKG.processor:Processor", api=1, summary="s", args=("lower",), check="PKG.check:check"
)
"""

CHECK = """
def check(extra_args):
    value = extra_args.get("lower")
    {check}
    if value is not None and not (isinstance(value, list) and all(type(one) is int for one in value)):
        raise ValueError("lower must be a list of token ids")
"""

# Lowers the logits of some tokens by five, which may change the most likely one.
PROCESSOR = """
import torch

class Processor:
    is_argmax_invariant = False
    {body}

    def __init__(self, ctx):
        self.ctx, self.rows, self.broken = ctx, {{}}, False

    def admit(self, row, params, prompt):
        ids = (params.extra_args or {{}}).get("lower")
        {admit}
        if ids is None:
            return False
        if any(not 0 <= one < self.ctx.vocab_size for one in ids):
            {refuse}
            raise ValueError("there is no such token")
        self.rows[row] = [*({kept}), *ids]
        return True

    def release(self, row):
        {release}

    def apply(self, logits, rows, output_counts):
        for line, row in zip(logits, rows.tolist(), strict=True):
            line[self.rows[row]] -= 5.0
        {apply}
"""

SAMPLES = """
from core_testing.conformance import LogitsSample

def samples():
    yield LogitsSample("two tokens", {"lower": [3, 9]}, refused=[{"lower": "x"}])
    yield LogitsSample("one token", {"lower": [0]})
    yield LogitsSample("nothing of it", {})
"""

PARTS = {
    "body": "pass",
    "admit": "pass",
    "refuse": "pass",
    "kept": "()",
    "release": "del self.rows[row]",
    "apply": "pass",
    "check": "pass",
}

CASES = {
    "samples_are_accepted": {"check": "if value == [0]: raise ValueError('no')"},
    "check_refuses_with_value_errors": {"check": "if value == '': raise TypeError('empty')"},
    "logits_stay_logits": {"apply": "if logits.shape[1] == 31: logits[:, 0] = float('nan')"},
    "argmax_is_as_declared": {"body": "is_argmax_invariant = True"},
    "rows_do_not_mix": {"apply": "if len(rows) > 2: logits[:, 3] -= 1"},
    "rows_are_forgotten": {"release": "pass", "kept": "self.rows.get(row, ())"},
    "outputs_may_come_along": {
        "admit": "self.seen = {**getattr(self, 'seen', {}), row: 0}",
        "apply": "for line, row in zip(logits, rows.tolist()): self.seen[row] += 1; line[-1] -= self.seen[row]",
    },
    "failures_stay_with_their_request": {"refuse": "self.broken = True", "apply": "if self.broken: logits += 1"},
}


@pytest.fixture
def processor(make_plugin):
    def make(samples: str = SAMPLES, *, drafts: bool = False, **given: str):
        parts = {**PARTS, **given}
        modules = {
            "manifest": MANIFEST.replace("api=1", f"api=1, drafts={drafts}"),
            "processor": PROCESSOR.format(**{key: value for key, value in parts.items() if key != "check"}),
            "check": CHECK.format(check=parts["check"]),
            "conformance": samples,
        }
        return make_plugin("core.logits", modules)

    return make


def test_a_sound_processor_passes(processor):
    report = processor().report("logits", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_logits(processor, check):
    assert set(processor(**CASES[check]).failing("logits")) == {check}


def test_a_processor_that_knows_drafts_passes(processor):
    report = processor(drafts=True).report("logits")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize(
    ("apply", "told"),
    [
        ("if len(set(rows.tolist())) < len(rows): logits[1:, 3] -= 1", "behind 1 drafts"),
        ("if len(set(rows.tolist())) < len(rows): self.rows[int(rows[0])] = [4]", "a draft was refused"),
    ],
)
def test_a_processor_that_mixes_positions_up_is_caught(processor, apply, told):
    failing = processor(drafts=True, apply=apply).failing("logits")
    assert set(failing) == {"drafts_are_as_declared"} and told in failing["drafts_are_as_declared"]


@pytest.mark.parametrize(
    ("apply", "told"),
    [
        ("logits[:] = float('-inf')", "nothing can be chosen"),
        ("logits[:, 0] = float('inf')", "NaN or inf"),
        ("self.ctx.tokens[0, 0] += 1", "writes to the rows' tokens"),
        ("rows += 1", "writes to rows"),
        ("output_counts += 1", "writes to rows"),
    ],
)
def test_what_a_processor_may_not_do(processor, apply, told):
    assert told in processor(apply=apply).failing("logits")["logits_stay_logits"]


def test_an_answer_of_admit_that_is_none_is_caught(processor):
    failing = processor(admit="if ids is None: return None").failing("logits")
    assert "due is True or False" in failing["rows_are_forgotten"]


def test_a_lenient_check_is_caught(processor):
    failing = processor(check="return").failing("logits")
    assert "check accepts {'lower': 'x'}" in failing["check_refuses_with_value_errors"]


def test_a_processor_that_reads_arguments_needs_samples(processor):
    report = processor("def samples():\n    return []\n").report("manifest", "logits")
    assert report.level == Level.L0
    assert any("it ships no LogitsSample" in one.because for one in report.not_run)


def test_a_processor_that_no_sample_concerns_is_not_shown_to_be_correct(processor):
    report = processor(admit="return False").report("manifest", "logits")
    assert report.level == Level.L0 and "no request of its samples concerns it" in str(report.not_run[0])


# -- sampling parameters of its own ------------------------------------------------------------------------------------

DECLARED = """
from core.api import LogitsSpec, SamplingField

FIELD = SamplingField(name="push", type="number", meaning="Lowers token 3.", default=0.0, low=0.0, high=8.0)
SPEC = LogitsSpec(name="broken", impl="PKG.processor:Processor", api=1, summary="s", fields=(FIELD,))
"""

PUSHING = """
class Processor:
    is_argmax_invariant = False

    def __init__(self, ctx):
        self.push = ctx.numbers["push"]

    def admit(self, row, params, prompt):
        return {admit}

    def release(self, row): ...

    def apply(self, logits, rows, output_counts):
        for line, push in zip(logits, self.push[rows].tolist(), strict=True):
            if len(line) > 3:
                line[3] -= {by}
"""

PUSHES = """
from core_testing.conformance import LogitsSample

def samples():
    yield LogitsSample("some", {"push": 2.5})
    yield LogitsSample("most", {"push": 8})
"""


@pytest.fixture
def pushing(make_plugin):
    def make(admit: str = "True", by: str = "push", samples: str = PUSHES):
        modules = {"manifest": DECLARED, "processor": PUSHING.format(admit=admit, by=by), "conformance": samples}
        return make_plugin("core.logits", modules)

    return make


@pytest.mark.parametrize("admit", ["True", "bool(self.push[row] > 0)"])
def test_a_processor_with_parameters_of_its_own_passes(pushing, admit):
    report = pushing(admit).report("manifest", "logits", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize(
    ("by", "told"),
    [("push + 1", "at their defaults"), ("float('nan') if push == 0 else push", "at their defaults")],
)
def test_a_default_that_has_an_effect_is_caught(pushing, by, told):
    failing = pushing(by=by).failing("logits")
    assert set(failing) == {"fields_are_as_declared"} and told in failing["fields_are_as_declared"]


def test_an_end_of_the_range_that_breaks_logits_is_caught(pushing):
    broken = "(float('inf') if push == 8 else push); line[:] = line[3] if push == 8 else line"
    failing = pushing(by=broken, samples=PUSHES.replace('"push": 8', '"push": 7')).failing("logits")
    assert set(failing) == {"fields_are_as_declared"} and "push = 8.0, an end of" in failing["fields_are_as_declared"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ('{"push": 9}', r"'some': push must be in [0, 8], got 9"),
        ('{"pull": 1}', "'some' uses pull, which the descriptor's args and fields lack"),
    ],
)
def test_samples_that_core_would_refuse_are_caught(pushing, args, told):
    failing = pushing(samples=PUSHES.replace('{"push": 2.5}', args)).failing("logits")
    assert told in failing["samples_are_accepted"]
