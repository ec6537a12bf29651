"""Native kernels are given no sizes or places that nobody compared: a call that is wrong raises and computes nothing.

The calls are made in a process of their own, one after the other, so that a crash is a failure here and not the end.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from core_plugin_cpu.native import library

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def outcomes():
    """Name -> what was raised, and whether the cache is as it was, of every call that came to an end."""
    done = subprocess.run(
        [sys.executable, "misuse.py"], cwd=TESTS, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"ended by {done.returncode} after {done.stdout.splitlines()[-1:]}: {done.stderr}"
    return {name: (said, kept) for name, said, kept in map(json.loads, done.stdout.splitlines())}


def test_every_misuse_raises_and_writes_nothing(outcomes):
    right, _ = outcomes.pop("what is right")
    assert right.strip() == ""
    assert len(outcomes) > 100
    assert [name for name, (said, _) in outcomes.items() if not said] == []
    assert [name for name, (_, kept) in outcomes.items() if not kept] == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "attend: too few rows",
            "ValueError: queries of (3, 4, 16) torch.float32 and: q (2, 4, 16) torch.float32",
        ),
        ("store: slot out of range", "IndexError: slots: number 1 of 3 is 96, outside 0 to 95"),
        ("attend: block out of range", "IndexError: blocks of row 1: number 1 of 2 is 6, outside 0 to 5"),
        (
            "attend: narrow block table",
            "row 0 has 20 tokens, 1 of them in this step; its block table holds 16",
        ),
        ("attend: offsets that fall", "IndexError: the rows of the step have [2, -1, 2] tokens, which are not its 3"),
        (
            "attend picked: positions behind the token",
            "IndexError: picked positions: 20 for token 1, at position 19; -1 to 19 expected",
        ),
        ("rotary: position out of range", "IndexError: positions: number 1 of 3 is 40, outside 0 to 39"),
        ("lookup: negative id", "IndexError: rows of a table: number 0 of 1 is -1, outside 0 to 31"),
        ("route: more than there are", "ValueError: route: 13 of 12 experts, of 2048 at most, cannot be chosen"),
        ("experts_in: bias of one", "biases must be (5, 32) float32, their columns next to each other; got (32,)"),
        ("experts_out: rows of fewer", "experts_out of weights (32, 64): x (3, 64) torch.float32 on cpu, ids (3, 2)"),
        ("replay: shifted position out of range", "IndexError: positions: number 0 of 3 is 40, outside 0 to 39"),
        ("replay: slot out of range", "IndexError: slots: number 1 of 3 is 96, outside 0 to 95"),
        ("replay: token id out of range", "IndexError: rows of a table: number 1 of 3 is 50, outside 0 to 49"),
        ("record: some of the rows", "range takes 1026 of the step's 2053 rows"),
        ("record: result of other rows", "the forward pass gave 2052 rows for 2053 tokens"),
    ],
)
def test_the_message_has_what_was_expected_and_what_was_found(outcomes, name, told):
    assert told in outcomes[name][0]
