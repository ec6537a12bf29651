"""Which architecture a PCI device of Intel has. Torch-free."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """Cards of one architecture.

    Attributes:
        arch: As torch and Triton name it.
        version: Graphics version of the hardware, (major, release).
        first, last: PCI device ids, both included.
    """

    arch: str
    version: tuple[int, int]
    first: int
    last: int


FAMILIES = (
    Family("pvc", (12, 60), 0x0BD0, 0x0BDF),  # Data Center GPU Max
    Family("dg2", (12, 55), 0x5690, 0x56CF),  # Arc A, Data Center GPU Flex
    Family("mtl", (12, 70), 0x7D40, 0x7D5F),
    Family("arl", (12, 74), 0x7D60, 0x7DDF),
    Family("bmg", (20, 1), 0xE200, 0xE2FF),  # Arc B
    Family("lnl", (20, 4), 0x6420, 0x64BF),
    Family("ptl", (30, 0), 0xB080, 0xB0BF),
)

_DATA_CENTER = "Data Center"


def family_of(device: int) -> Family | None:
    """Return the family of a PCI device id; None for one that is older than all of them, or not known yet."""
    return next((one for one in FAMILIES if one.first <= device <= one.last), None)


def is_client(name: str) -> bool:
    """Say whether a card of this name is none of a data centre."""
    return _DATA_CENTER not in name
