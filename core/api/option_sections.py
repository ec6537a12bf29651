"""Marks of an option of a plugin beside type, limits, default and description. Provisional.

A section of options is a pydantic model, named by an `OptionSection` (entry-point group `core.option_sections`): each
of its fields is an option like core's own, with a flag, a variable of the environment and a key of configuration files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OptionMarks:
    """Metadata of an option's annotation: `key: Annotated[str | None, OptionMarks(secret=True)] = None`.

    Attributes:
        secret: The value is never printed, and no command line of a process that core starts holds it.
        aliases: Further names, as flags without dashes in front: `max-notes` is `--max-notes`, `CORE_MAX_NOTES`, and in
            a file `max_notes`.
        bare: What the flag means without a value; None: it needs one. For options that take a text or a number.
    """

    secret: bool = False
    aliases: tuple[str, ...] = ()
    bare: str | None = None
