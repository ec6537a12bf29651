"""Which cards a visible-devices variable leaves, and what a probe reports of them."""

from __future__ import annotations

import pytest
from core_plugin_accelerator import Card, Hidden, absent, found, visible

CARDS = [Card(f"card {number}", "9.0", 80 * 2**30, (9, 0), uuid) for number, uuid in enumerate(("GPU-ab1", "GPU-ab2"))]
CARDS.append(Card("card 2", "8.9", 24 * 2**30, (8, 9), "GPU-c03"))


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (None, [0, 1, 2]),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-c03", [2]),
        ("gpu-ab2,GPU-ab1", [1, 0]),
        ("GPU-c", [2]),
        ("0,-1,2", [0]),  # what names no card ends the list
        ("1,7", [1]),
        ("2,GPU-ab", [2]),  # two cards begin so
        ("0,", [0]),
    ],
)
def test_what_a_variable_leaves_in_its_order(value, left):
    assert visible(CARDS, "VISIBLE", value) == [CARDS[index] for index in left]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "VISIBLE is set and empty, which hides every card"),
        ("-1", "VISIBLE='-1' hides every card: '-1' names none of the 3 here"),
        ("NoDevFiles", "'NoDevFiles' names none of the 3 here"),
        ("0,1,0", "VISIBLE='0,1,0' names card '0' twice, which hides every card"),
        ("0,GPU-ab1", "names card 'GPU-ab1' twice"),
    ],
)
def test_a_variable_that_hides_all_says_why(value, why):
    with pytest.raises(Hidden) as hidden:
        visible(CARDS, "VISIBLE", value)
    assert why in str(hidden.value)


def test_what_is_found_is_the_first_card_and_each_of_them():
    result = found(CARDS[:2], {"driver": "570.1"}, lambda arch: {f"core.x:{arch}": 3})
    assert result.reason == "card 0 (9.0), 80 GiB, card 1 (9.0), 80 GiB, driver 570.1"
    assert (result.available, result.count, result.capability) == (True, 2, (9, 0))
    assert [result.of(index).facts["name"] for index in range(2)] == ["card 0", "card 1"]
    assert result.facts["memory"] == 80 * 2**30 and result.facts["count"] == 2
    assert result.preferences == {"core.x:9.0": 3} and result.has("own_memory")
    with pytest.raises(IndexError):
        result.of(2)


def test_equal_cards_are_counted_and_others_listed():
    twins = [CARDS[0], CARDS[0]]
    assert found(twins, {}, lambda arch: {}).reason == "2 x card 0 (9.0), 80 GiB"
    assert found(CARDS[1:], {}, lambda arch: {}).reason == "card 1 (9.0), 80 GiB, card 2 (8.9), 24 GiB"


def test_a_card_that_cannot_be_used_keeps_its_index():
    old = Card("old", "6.1", 2**33, (6, 1), unfit="old is too old")
    result = found([old, CARDS[0]], {}, lambda arch: {})
    assert (result.available, result.reason, result.count) == (False, "old is too old", 2)
    assert result.of(1).available and result.of(1).facts["name"] == "card 0"


def test_a_reason_is_one_line():
    assert absent("no\n  driver").reason == "no driver"
