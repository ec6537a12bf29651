"""Flag dialects: core's flags are left alone, what is translated is core's, and what is refused is so with a reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from core.api.errors import ConfigError
from core.api.flags import FlagDialect
from core.cli.commands import add_common
from core.config.fields import option_fields
from core.config.flags import add_option_flags
from core.config.parser import CoreParser
from core_testing.conformance.outcome import Failed, checks, require
from core_testing.conformance.samples import FlagSample
from core_testing.conformance.subject import Subject

_REFUSED, _NO_VALUE = "CORE-C105", "CORE-C104"
_UNKNOWN = "no-such-flag-of-the-kit"
_VALUES: Mapping[str, str] = {"int": "1", "float": "0.5", "mapping": "{}"}


def cores_flags_pass_untouched(subject: Subject) -> None:
    """Every flag of core's stays as it is with its value, `=` or not, and so do the model and a negative number."""
    dialect, known = _dialect(subject), _known()
    for field in option_fields():
        value = field.choices[0] if field.choices else _VALUES.get(field.kind, "text")
        switch = field.kind == "bool"
        for words in (
            ([field.flag], [f"--no-{field.name}"]) if switch else ([field.flag, value], [f"{field.flag}={value}"])
        ):
            given = ["a/model", *words, "--max-model-len", "-1"]
            found = list(_asked("translate()", dialect.translate, given, known))
            require(found == given, f"of {' '.join(given)} it makes {' '.join(found)}")
        require(_asked("option()", dialect.option, field.flag[2:]) in (None, field.flag[2:]), f"{field.flag} is core's")


def unknown_words_are_left_alone(subject: Subject) -> None:
    """Words that are nobody's flag, key, option or value are left for others: the next dialect, and core to refuse."""
    dialect, words = _dialect(subject), [f"--{_UNKNOWN}", "1"]
    found = list(_asked("translate()", dialect.translate, words, _known()))
    require(found == words, f"of an unknown flag it makes {' '.join(found) or 'nothing'}")
    for what, function, arguments in (
        ("option()", dialect.option, (_UNKNOWN,)),
        ("setting()", dialect.setting, (_UNKNOWN, 1)),
        ("spelled()", dialect.spelled, ("model.dtype", _UNKNOWN)),
        ("describe()", dialect.describe, (_UNKNOWN,)),
    ):
        require(_asked(what, function, *arguments) is None, f"{what} knows something of {_UNKNOWN!r}")


def samples_become_cores_flags(subject: Subject) -> None:
    """Lines of its samples become what they say, of core's flags alone; as keys of a file they set core's options."""
    dialect, known = _dialect(subject), _known()
    names = {name for field in option_fields() for name in (*field.names, field.path)}
    for sample in _samples(subject, refused=False):
        translated = _asked("translate()", dialect.translate, list(sample.words), known)
        found = [_named(dialect, word, known) for word in translated]
        require(found == list(sample.means or ()), f"{sample.name}: it makes {' '.join(found) or 'nothing'}")
        strange = [word for word in found if word.startswith("--") and word.partition("=")[0] not in known]
        require(not strange, f"{sample.name}: {', '.join(strange)} is no flag of core's")
        key = _key(sample)
        if key is not None and dialect.option(key[0]) is None:
            pairs = _asked("setting()", dialect.setting, *key)
            require(pairs is not None, f"{sample.name}: setting() does not know {key[0]!r}")
            strange = [name for name, _ in pairs if name.replace("_", "-") not in names and name not in names]
            require(not strange, f"{sample.name}: {', '.join(strange)} is no option of core's")


def refusals_say_why(subject: Subject) -> None:
    """Words that its samples call wrong are refused with CORE-C105, or C104 for a value that lacks, and a reason."""
    dialect, known = _dialect(subject), _known()
    for sample in _samples(subject, refused=True):
        try:
            found = dialect.translate(list(sample.words), known)
        except ConfigError as error:
            require(error.code in (_REFUSED, _NO_VALUE), f"{sample.name}: it is refused with {error.code}")
            require(len(error.hint or "") > 3, f"{sample.name}: no hint says why, or what to write instead")
            require(sample.words[0].partition("=")[0] in error.message, f"{sample.name}: the flag is not named")
        except Exception as error:
            raise Failed(f"{sample.name}: {type(error).__name__} in place of ConfigError: {error}") from error
        else:
            raise Failed(f"{sample.name}: it is not refused, but read as {' '.join(found) or 'nothing'}")


def _dialect(subject: Subject) -> FlagDialect:
    dialect: FlagDialect = subject.impl()()
    return dialect


def _known() -> Mapping[str, Any]:
    parser = CoreParser(prog="core serve")
    add_option_flags(parser, positional_model=True)
    add_common(parser)
    return parser._option_string_actions


def _samples(subject: Subject, *, refused: bool) -> Sequence[FlagSample]:
    return [sample for sample in subject.need_samples(FlagSample) if (sample.means is None) == refused]


def _named(dialect: FlagDialect, word: str, known: Collection[str]) -> str:
    """Return a flag that has but another name by core's, as core's parser reads it."""
    flag, equals, value = word.partition("=")
    if flag in known or not flag.startswith("--"):
        return word
    negation, name = ("no-", flag[5:]) if flag.startswith("--no-") else ("", flag[2:])
    mine = _asked("option()", dialect.option, name)
    return word if mine is None else f"--{negation}{mine}{equals}{value}"


def _key(sample: FlagSample) -> tuple[str, str] | None:
    """Return the line as a key of a file and its value, if it is one flag and one value."""
    flag, *values = sample.words
    return (flag[2:], values[0]) if flag.startswith("--") and "=" not in flag and len(values) == 1 else None


def _asked(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        shown = " ".join(map(str, arguments[0])) if isinstance(arguments[0], list) else arguments[0]
        raise Failed(f"{what} of {shown} raises {type(error).__name__}: {error}") from error


CHECKS = checks(cores_flags_pass_untouched, unknown_words_are_left_alone, samples_become_cores_flags, refusals_say_why)
