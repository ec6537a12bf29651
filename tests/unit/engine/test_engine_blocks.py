"""The block pool and the hashes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.engine.blocks import BlockPool
from core.engine.hashing import BlockHasher


def test_allocation_prefers_blocks_without_content_then_the_least_recently_freed():
    pool = BlockPool(6)
    first, second = pool.allocate(2), pool.allocate(2)
    pool.publish([*first, *second], [b"a", b"b", b"c", b"d"])
    pool.release(first)
    pool.release(second)
    # One block never had content; then the tail of the sequence freed first, then its head.
    assert pool.allocate(3)[1:] == [first[1], first[0]]
    assert pool.lookup(b"a") is None
    assert pool.lookup(b"c") == second[0]


def test_the_null_block_is_never_handed_out():
    pool = BlockPool(5)
    assert sorted(pool.allocate(4)) == [1, 2, 3, 4]
    with pytest.raises(ValueError, match="1 blocks asked, 0 free"):
        pool.allocate(1)


def test_double_release_is_refused():
    pool = BlockPool(3)
    blocks = pool.allocate(1)
    pool.release(blocks)
    with pytest.raises(ValueError, match="released twice"):
        pool.release(blocks)


def test_equal_content_is_published_once_and_the_duplicate_stays_private():
    pool = BlockPool(4)
    first, second = pool.allocate(1), pool.allocate(1)
    pool.publish([*first, *second], [b"x", b"x"])
    assert pool.lookup(b"x") == first[0]
    pool.release(second)
    pool.check([first])


def test_check_finds_a_wrong_reference_count():
    pool = BlockPool(4)
    blocks = pool.allocate(2)
    with pytest.raises(RuntimeError, match="reference counts"):
        pool.check([blocks, [blocks[0]]])


@given(st.lists(st.integers(0, 2**31 - 1), max_size=40), st.integers(1, 8))
def test_hashes_are_the_same_however_they_were_extended(tokens, size):
    hasher = BlockHasher(size, key=b"k" * 16)
    array = np.array(tokens, np.int32)
    whole: list[bytes] = []
    hasher.extend(whole, hasher.root(), array)
    grown: list[bytes] = []
    for length in range(len(tokens) + 1):
        hasher.extend(grown, hasher.root(), array[:length])
    assert grown == whole
    assert len(whole) == len(tokens) // size


def test_hashes_differ_by_key_salt_and_predecessor():
    tokens = np.arange(8, dtype=np.int32)

    def hashes(key: bytes, salt: str | None, data: np.ndarray) -> list[bytes]:
        hasher, out = BlockHasher(4, key=key * 16), []
        hasher.extend(out, hasher.root(salt=salt), data)
        return out

    base = hashes(b"a", None, tokens)
    assert not set(base) & set(hashes(b"b", None, tokens))
    assert not set(base) & set(hashes(b"a", "tenant", tokens))
    changed = tokens.copy()
    changed[0] = 99
    assert not set(base) & set(hashes(b"a", None, changed))
