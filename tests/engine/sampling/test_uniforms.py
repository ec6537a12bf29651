"""The numbers that tokens are drawn with."""

import numpy as np

from core.worker.sampling.rng import Uniforms, keyed_uniforms

NONE = np.zeros(64, dtype=np.int64)


def drawn(seed, steps=50, rows=64):
    source = Uniforms(seed)
    return np.concatenate([source.draw(NONE[:rows], NONE[:rows], np.zeros(rows, dtype=bool)) for _ in range(steps)])


def test_one_seed_gives_one_sequence_however_it_is_divided_into_steps():
    assert np.array_equal(drawn(7), drawn(7, steps=100, rows=32))
    assert not np.array_equal(drawn(7), drawn(8))
    assert not np.array_equal(drawn(-1), drawn(0))


def test_the_sequence_is_spread_evenly_and_without_repetition():
    numbers = drawn(0, steps=400)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert len(np.unique(numbers)) == len(numbers)
    counts, _ = np.histogram(numbers, bins=32, range=(0, 1))
    expected = len(numbers) / 32
    assert ((counts - expected) ** 2 / expected).sum() < 70  # chi-square with 31 degrees of freedom: p = 0.0001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.02


def test_a_row_with_the_seed_of_the_engine_draws_other_numbers():
    places = np.arange(64)
    seeded = keyed_uniforms(np.full(64, 7), places)
    assert not np.isin(seeded, drawn(7)).any()
