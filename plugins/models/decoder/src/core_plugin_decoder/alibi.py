"""ALiBi. Torch-free."""

from __future__ import annotations

from itertools import chain


def alibi_slopes(heads: int, steepest: float = 8.0) -> tuple[float, ...]:
    """Return a slope for each head: a geometric series from near 1 down to `2**-steepest`.

    Args:
        heads: If they are no power of two, the series of the greatest below comes first; behind it, every other slope
            of the next power's.
    """
    below = 1 << (heads.bit_length() - 1)
    between = (2.0 ** (-steepest * step / (2 * below)) for step in range(1, 2 * below, 2))
    whole = (2.0 ** (-steepest * step / below) for step in range(1, below + 1))
    return tuple(slope for slope, _ in zip(chain(whole, between), range(heads)))
