"""Sizes as people write them."""

from __future__ import annotations

import re

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)(?:\s*([kmgt]?)(i?)b)?\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the number of bytes of `2GiB`, `1.5 GB` or `1048576`.

    KiB, MiB, GiB and TiB count in 1024s; kB, MB, GB and TB in 1000s. Case does not matter.

    Raises:
        ValueError: The text is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is not a size; write bytes or a number with KiB, MiB, GiB, kB, MB, GB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[(match[2] or "").lower()])


def without_unit(text: str) -> str:
    """Return a number with a unit written out: `8k` is 8000, `8K` is 8192. Anything else stays as it is."""
    match = _COUNT.fullmatch(text)
    if match is None:
        return text
    base = 1000 if match[2].islower() else 1024
    return str(int(float(match[1]) * base ** _POWERS[match[2].lower()]))


def format_size(num_bytes: float) -> str:
    """Return a size with about three digits and a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(num_bytes) < 1024:
            return f"{_short(num_bytes)} {unit}"
        num_bytes /= 1024
    return f"{_short(num_bytes)} TiB"


def _short(number: float) -> str:
    # From here on `g` would write 1e+03.
    return f"{number:.0f}" if abs(number) >= 999.5 else f"{number:.3g}"
