"""Old names that still work for a while, and names that are gone: one warning or one error that says what to write.

For public and plugin interfaces only; nothing inside core keeps an old name. `docs/plugins/stability.md` says when and
how to use this. Every shim names the version that removes it. From that version on it is an error to use it, and
core's tests fail until it is taken out.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn, ParamSpec, TypeVar

from core.version import __version__

P = ParamSpec("P")
R = TypeVar("R")


class CoreDeprecationWarning(FutureWarning):
    """Something of core's interface was used that a later version removes. Shown once per place that uses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed:
    """A deprecated name: it still works, and warns.

    Attributes:
        new: What to write instead: `package.module:Name` for a name of a module, else a bare name.
        removed_in: First version without it.
    """

    new: str
    removed_in: str

    @property
    def expired(self) -> bool:
        """Whether this version is one without it."""
        from packaging.version import Version

        return Version(Version(__version__).base_version) >= Version(self.removed_in)

    def text(self, old: str) -> str:
        """Return what there is to say of `old`."""
        new = self.new.replace(":", ".")
        if self.expired:
            return f"{old} was removed in core {self.removed_in}: use {new}."
        return f"{old} is deprecated: use {new}. Core {self.removed_in} removes it."

    def warn(self, old: str, error: type[Exception], *, stacklevel: int = 2) -> None:
        """Warn at the line of a caller, `stacklevel` counted from this method's; raise `error` if it is expired."""
        if self.expired:
            raise error(self.text(old))
        warnings.warn(self.text(old), CoreDeprecationWarning, stacklevel=stacklevel + 1)

    def warn_of(self, old: str, function: Any, error: Callable[[str], Exception]) -> None:
        """Warn at the place where a function is defined; raise what `error` makes of the text if it is expired."""
        if self.expired:
            raise error(self.text(old))
        plain = inspect.unwrap(getattr(function, "__func__", function))
        code, home = plain.__code__, plain.__globals__
        warnings.warn_explicit(
            self.text(old),
            CoreDeprecationWarning,
            code.co_filename,
            code.co_firstlineno,
            module=plain.__module__,
            registry=home.setdefault("__warningregistry__", {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A removed name, remembered so that the error says what replaces it.

    As a class attribute it raises wherever the attribute is asked for, and `hasattr` is false. A pydantic model hides
    what it says: there, `__getattr__` calls `look_up`.

    Attributes:
        since: First version without it.
        instead: What to do, as a sentence.
    """

    since: str
    instead: str

    def refuse(self, old: str) -> NoReturn:
        """Raise `AttributeError` with the hint."""
        raise AttributeError(f"{old} was removed in core {self.since}. {self.instead}")

    def __get__(self, instance: object, owner: type) -> NoReturn:
        name = next((name for kind in owner.__mro__ for name, value in vars(kind).items() if value is self), "?")
        self.refuse(f"{owner.__name__}.{name}")


def look_up(owner: str, name: str, table: Mapping[str, Renamed | Removed]) -> Any:
    """Return an old name of a module from its new place: what a module's `__getattr__` does with names it lacks.

    Args:
        owner: Name of the module (or class) that is asked for `name`.

    Raises:
        AttributeError: The name was never there, or is gone.
    """
    found = table.get(name)
    if found is None:
        raise AttributeError(f"{owner!r} has no attribute {name!r}")
    if isinstance(found, Removed):
        found.refuse(f"{owner}.{name}")
    found.warn(f"{owner}.{name}", AttributeError, stacklevel=3)
    home, _, attribute = found.new.partition(":")
    return getattr(import_module(home), attribute)


def renamed_keyword(old: str, new: str, *, removed_in: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that lets a function be called with `old=` for `new=`.

    The function raises `TypeError` when it gets both, and for the old one from version `removed_in` on.
    """
    note = Renamed(new=new, removed_in=removed_in)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if old in kwargs:
                what = f"argument '{old}' of {function.__qualname__}()"
                if new in kwargs:
                    raise TypeError(f"{what} is the old name of '{new}', which was given as well.")
                note.warn(what, TypeError)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


def renamed_method(implementation: object, new: str, old: str, *, removed_in: str) -> Callable[..., Any]:
    """Return the method of a plugin's object that core calls `new` and used to call `old`; bind it once.

    Whichever the most derived class defines is taken, so that an old override of a plugin outweighs core's own default
    under the new name.

    Raises:
        AttributeError: It has neither, or only the old one and that is expired.
    """
    kind = type(implementation)
    defined = next((name for base in kind.__mro__ for name in (new, old) if name in vars(base)), new)
    method: Callable[..., Any] = getattr(implementation, defined)
    if defined == old:
        Renamed(new=new, removed_in=removed_in).warn_of(f"method '{old}' of {kind.__name__}", method, AttributeError)
    return method
