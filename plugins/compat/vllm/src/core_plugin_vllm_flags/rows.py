"""A row of the table, and short forms of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ON, OFF = "true", "false"
"""Values of a switch."""

ANY = "*"
"""Every value."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A flag that is no option here, however it is spelled.

    Attributes:
        names: Spellings, with dashes. A switch has a `--no-` form of each.
        why: What to say when it is refused, and in the documentation.
        takes: How many values follow; 0 for a switch (its values are `true` and `false`), -1 for any number.
        fine: Values that ask for what happens anyway; `*` stands for all.
        needs: `fine` holds only beside one of these flags.
        same: A flag of ours; a value that it has as well is accepted.
        words: Value (or `*`) -> what to read in its place, `{}` being the value.
    """

    names: tuple[str, ...]
    why: str
    takes: int = 1
    fine: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    same: str = ""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def one(names: str, why: str, *fine: str, **more: tuple[str, ...]) -> Foreign:
    """A flag with a value: `fine` ones ask for what is so anyway, `more` are said in words of ours."""
    return Foreign(tuple(names.split()), why, 1, fine, words=more)


def repeats(name: str, flag: str, why: str) -> Foreign:
    """A flag that may say again what one of ours says."""
    return Foreign((name,), why, same=flag)


def many(names: str, why: str) -> tuple[Foreign, ...]:
    """Flags refused with one sentence, a row for each."""
    return tuple(Foreign((name,), why) for name in names.split())


def switch(names: str, why: str, *fine: str, needs: tuple[str, ...] = (), **words: tuple[str, ...]) -> Foreign:
    """A flag without a value."""
    return Foreign(tuple(names.split()), why, 0, fine, needs, words=words)
