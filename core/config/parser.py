"""An argument parser that never exits on its own and suggests what was meant. Standard library only."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from core.api.errors import ConfigError
from core.config.dialects import lead
from core.suggest import nearest


class CoreParser(argparse.ArgumentParser):
    """`ArgumentParser` whose errors are `ConfigError`s.

    Attributes:
        spellings: Further spellings of flags, each with the one that is registered.
        foreign: What makes of flags of other servers words of core's: a function of the words and of core's flags.
        rest: Attribute of the result that gets what follows a word `--`, as it is; empty for none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.spellings: dict[str, str] = {}
        self.foreign: Callable[[Sequence[str], Collection[str]], list[str]] | None = None
        self.rest = ""
        self._late: Callable[[CoreParser], None] | None = None

    def fill_later(self, fill: Callable[[CoreParser], None]) -> None:
        """Have `fill` add further arguments when the parser is used: other commands start faster without."""
        self._late = fill

    def fill(self) -> None:
        """Put the arguments of `fill_later` in place now."""
        late, self._late = self._late, None
        if late is not None:
            late(self)

    def drop_help(self) -> None:
        """Take argparse's own `--help` away, so that another can stand in its place."""
        for action in [one for one in self._actions if isinstance(one, argparse._HelpAction)]:
            action.container._remove_action(action)  # type: ignore[attr-defined]  # its group shows it
            for flag in action.option_strings:
                self._option_string_actions.pop(flag, None)

    def keep_rest(self, dest: str) -> None:
        """Hand what follows a word `--` over as the list `dest`: it is meant for another program."""
        self.rest = dest
        self.set_defaults(**{dest: []})

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that every mistake is printed in one place."""
        raise ConfigError("CORE-C104", f"{self.prog}: {message}.", hint=f"See `{self.prog} --help`.")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse after unifying the spellings; refuse what is left over."""
        self.fill()
        mine, theirs = self._cut(None if args is None else list(args))
        words = None if mine is None else [self._unify(word) for word in mine]
        if words is not None and self.foreign:
            words = self.foreign(words, self._option_string_actions)
        found, left = super().parse_known_args(words, namespace)
        if theirs:
            setattr(found, self.rest, theirs)
        if left:
            self._refuse(left[0])
        return found, left

    def _cut(self, words: list[str] | None) -> tuple[list[str] | None, list[str]]:
        if not self.rest or words is None or "--" not in words:
            return words, []
        place = words.index("--")
        return words[:place], words[place + 1 :]

    def _unify(self, word: str) -> str:
        if not word.startswith("--"):
            return word
        name, equals, value = word.partition("=")
        dashed = name.replace("_", "-")
        if dashed in self.spellings or dashed in self._option_string_actions:
            name = self.spellings.get(dashed, dashed)
        return name + equals + value

    def _refuse(self, word: str) -> NoReturn:
        flag = word.partition("=")[0]
        if not flag.startswith("-"):
            raise ConfigError(
                "CORE-C104", f"{self.prog}: unexpected argument {word!r}.", hint=f"See `{self.prog} --help`."
            )
        known = [*self._option_string_actions, *self.spellings]
        hint = nearest(flag, known) or f"See `{self.prog} --help`."
        if self.foreign is not None:
            hint = f"{hint} {lead()}".rstrip()
        raise ConfigError("CORE-C104", f"{self.prog}: unknown flag {flag}.", hint=hint)
