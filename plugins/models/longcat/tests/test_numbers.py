"""Globs match the numbers of a range, and no others."""

from fnmatch import fnmatchcase

import pytest
from core_plugin_longcat.numbers import globs


@pytest.mark.parametrize(("first", "end"), [(0, 0), (3, 3), (0, 1), (0, 13), (7, 12), (5, 250), (512, 768), (99, 1001)])
def test_globs_are_those_of_a_range(first, end):
    found = list(globs(first, end))
    matched = {number for number in range(1100) if any(fnmatchcase(str(number), one) for one in found)}
    assert matched == set(range(first, end))
    assert len(found) <= 2 * 9
