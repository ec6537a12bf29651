"""The page on context lengths names every rule with every parameter, and the contexts that core computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core.api import RopeConfig
from core.api.rotary import ORIGINAL, RULES

PAGE = (Path(__file__).parents[3] / "docs" / "context-length.md").read_text()
SECTION = PAGE.partition("\n## The rule of each type\n")[2].partition("\n## ")[0]
ROWS = {
    row[0]: row[1:]
    for row in re.findall(r"^\| `(?!rope_type)(\w+)`[^|]*\| ([^|]*)\| ([^|]*) \| ([^|]*) \|$", SECTION, re.MULTILINE)
}


def test_every_rule_has_a_row():
    assert set(ROWS) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_row_names_the_parameters_and_the_context(rule):
    parameters, context, default = ROWS[rule]
    known = RULES[rule]
    assert {*known.required, *known.optional, *known.factors} - {ORIGINAL} <= set(re.findall(r"`(\w+)`", parameters))
    numbers = dict.fromkeys(known.required, 4.0) | {"factor": 4.0, "high_freq_factor": 8.0, ORIGINAL: 100.0}
    lists = {key: [1.0] * 4 for key in known.factors}
    rope = RopeConfig(head_dim=8, rotary_dim=8, max_positions=300, scaling={"rope_type": rule, **numbers, **lists})
    rope.require_known()
    said = {"`M`": 300, "`M`, which is the scaled one": 300, "`factor` x `M`": 1200, "`factor` x `O`": 400, "`O`": 100}
    assert rope.context == said[context]
    assert rope.default_context == (rope.context if default == "the context" else said[default])
