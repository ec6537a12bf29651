"""An argument parser that never exits on its own and suggests what was meant. Standard library only."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from core.api.errors import ConfigError
from core.config.dialects import lead, option_of, unknown_flags
from core.suggest import nearest


class CoreParser(argparse.ArgumentParser):
    """`ArgumentParser` whose errors are `ConfigError`s.

    Attributes:
        spellings: Further spellings of flags, each with the one that is registered.
        foreign: What makes of flags of other servers words of core's: a function of the words and of core's flags.
        rest: Attribute of the result that gets what follows a word `--`, as it is; empty for none.
        waits: Whether nothing is in place before `fill`, as with a case that a plugin brings.
        lead: Says what brings a case that is not here; an empty text if nobody knows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.spellings: dict[str, str] = {}
        self.foreign: Callable[[Sequence[str], Collection[str]], list[str]] | None = None
        self.rest = ""
        self.waits = False
        self.lead: Callable[[str], str] | None = None
        self._late: list[Callable[[CoreParser], None]] = []

    def fill_later(self, fill: Callable[[CoreParser], None]) -> None:
        """Have `fill` add further arguments when the parser is used: other commands start faster without."""
        self._late.append(fill)

    def fill(self) -> None:
        """Put the arguments of `fill_later` in place now."""
        late, self._late, self.waits = self._late, [], False
        for fill in late:
            fill(self)

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
        if words is not None and self.foreign is not None:
            self._adopt(unknown_flags(words, self._option_string_actions))
            words = self.foreign([self._unify(word) for word in words], self._option_string_actions)
        found, left = super().parse_known_args(words, namespace)
        if theirs:
            setattr(found, self.rest, theirs)
        if left:
            self._refuse(left[0])
        return found, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Say of a case that is not here what brings it, before argparse refuses it."""
        absent = isinstance(action, argparse._SubParsersAction) and value not in action.choices
        if absent and self.lead is not None and (hint := self.lead(str(value))):
            raise ConfigError("CORE-C104", f"{self.prog}: unknown command {value!r}.", hint=hint)
        super()._check_value(action, value)

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

    def _adopt(self, words: Sequence[str]) -> None:
        """Take flags that have another name with another server for further names of core's flags."""
        for word in words:
            flag = word.partition("=")[0].replace("_", "-")
            section, negation, name = _parts(flag)
            mine = option_of(name) if flag.startswith("--") else None
            action = self._option_string_actions.get(f"--{negation}{mine}")
            titles = () if action is None else ("", action.dest.partition(".")[0].replace("_", "-"))
            if mine is not None and action is not None and section in titles:
                self._option_string_actions[f"--{negation}{name}"] = action
                self.spellings[flag] = f"--{negation}{name}"

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


def _parts(flag: str) -> tuple[str, str, str]:
    """Return section, `no-` or nothing, and name of `--section.name`, `--no-section.name` or `--section.no-name`."""
    section, _, name = flag.removeprefix("--").rpartition(".")
    negated = section.startswith("no-") or name.startswith("no-")
    return section.removeprefix("no-"), "no-" if negated else "", name.removeprefix("no-")
