"""Which blocks leave by adaptive replacement, against its description."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from core_plugin_cpu_offload.eviction import AdaptiveReplacement
from hypothesis import example, given, settings


class Described:
    """ARC as figure 4 of its paper has it, case by case; lists begin with what was not used for longest."""

    def __init__(self, slots):
        self.slots, self.share = slots, 0
        self.t1, self.t2, self.b1, self.b2 = [], [], [], []

    def request(self, x):
        if x in self.t1 + self.t2:
            (self.t1 if x in self.t1 else self.t2).remove(x)
            self.t2.append(x)
        elif x in self.b1:
            self.share = min(self.slots, self.share + max(1, len(self.b2) / len(self.b1)))
            self.replace(x)
            self.b1.remove(x)
            self.t2.append(x)
        elif x in self.b2:
            self.share = max(0, self.share - max(1, len(self.b1) / len(self.b2)))
            self.replace(x)
            self.b2.remove(x)
            self.t2.append(x)
        else:
            self.miss(x)
            self.t1.append(x)

    def miss(self, x):
        all_four = len(self.t1 + self.t2 + self.b1 + self.b2)
        if len(self.t1 + self.b1) == self.slots:
            if len(self.t1) < self.slots:
                self.b1.pop(0)
                self.replace(x)
            else:
                self.t1.pop(0)
        elif all_four >= self.slots:
            if all_four == 2 * self.slots:
                self.b2.pop(0)
            self.replace(x)

    def replace(self, x):
        if self.t1 and (len(self.t1) > self.share or (x in self.b2 and len(self.t1) == self.share)):
            self.b1.append(self.t1.pop(0))
        else:
            self.b2.append(self.t2.pop(0))


@pytest.mark.covers("KV-03")
@given(slots=st.integers(1, 6), wanted=st.lists(st.integers(0, 12), max_size=120))
@example(slots=1, wanted=[1, 1, 0, 0, 1])
@settings(max_examples=200, deadline=None)
def test_adaptive_replacement_keeps_what_its_description_keeps(slots, wanted):
    described, order, stored = Described(slots), AdaptiveReplacement(slots), set()
    for one in (b"%d" % number for number in wanted):
        described.request(one)
        if one in stored:
            order.touch(one)
        else:
            stored.difference_update(order.evict([one], slots - len(stored), stored.__contains__))
            order.add(one)
            stored.add(one)
        assert stored == {*described.t1, *described.t2}


def test_a_block_in_use_stays_whatever_the_order_says():
    order = AdaptiveReplacement(3)
    assert order.evict([b"a", b"b", b"c"], 3, set().__contains__) == []
    for name in (b"a", b"b", b"c"):
        order.add(name)
    order.touch(b"a")
    assert order.evict([b"d"], 0, {b"a"}.__contains__) == [], "the blocks used once are in use"
    assert order.evict([b"d", b"e"], 0, {b"a", b"c"}.__contains__) == [b"c", b"a"], "d came again: one more used once"
    order.add(b"d")
    order.add(b"e")
    order.discard(b"b")
    assert order.evict([b"f"], 0, {b"d", b"e"}.__contains__) == [b"d"]
