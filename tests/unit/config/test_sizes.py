from __future__ import annotations

import pytest

from core.config.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1048576", 2**20),
        ("512MiB", 512 * 2**20),
        ("2GiB", 2 * 2**30),
        ("2gib", 2 * 2**30),
        ("1.5 GB", 1_500_000_000),
        (" 3 kB ", 3000),
        ("7B", 7),
        ("1TiB", 2**40),
    ],
)
def test_sizes(text, expected):
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1iB", "1 XB", "1e3", "2GiBs", "2g"])
def test_not_sizes(text):
    with pytest.raises(ValueError, match="size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1536, "1.5 KiB"),
        (2**31, "2 GiB"),
        (1000 * 2**20, "1000 MiB"),
        (5000 * 2**40, "5000 TiB"),
        (3 * 2**40, "3 TiB"),
    ],
)
def test_shown(size, text):
    assert format_size(size) == text
