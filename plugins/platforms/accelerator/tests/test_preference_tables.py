"""Preferences of cards: tables that name only what there is, or what is planned."""

from __future__ import annotations

import pytest
from core_plugin_accelerator import points_of
from core_plugin_accelerator.preferences import Preference, rows_for, table

from core.plugins.kinds import KINDS
from core.plugins.known import Table

PACKAGES = ("core_plugin_cuda", "core_plugin_rocm", "core_plugin_xpu")


def test_rows_are_for_the_architectures_that_their_globs_match():
    rows = [Preference(("8.*", "9.0"), "", {"a": 1}), Preference(("9.?",), "", {"b": 2})]
    assert [len(rows_for(rows, arch)) for arch in ("8.6", "9.0", "9.9", "10.0")] == [1, 2, 1, 0]


def test_points_of_several_rows_add_up():
    found = points_of("core_plugin_cuda", "9.0")
    assert found["core.attention_backends:flash_attn_3"] == 20 and found["core.attention_backends:triton"] == 5


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_one_that_somebody_knows(package):
    known = Table.read()
    for row in table(package):
        assert row.why and row.points and all(type(points) is int for points in row.points.values())
        for key in row.points:
            group, _, name = key.partition(":")
            assert group in KINDS and (known.named(group, name)), key
