"""Fitting: what keeps a class or an object from being one of a protocol, in words."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Protocol

from core.api.kinds import Contract
from core.plugins.signatures import against, shown, signature_of, without_self

Parameter = inspect.Parameter

_NEARLY = 0.8
"""Likeness of two names, of 1, from which on one is taken for the other misspelt."""


def methods_of(protocol: type) -> dict[str, Any]:
    """Return the methods of a protocol by name, without its constructor."""
    return {
        name: member
        for base in reversed(protocol.__mro__)
        if base is not Protocol
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod))
    }


def misfits_of(contract: Contract, value: object) -> list[str]:
    """Return what keeps an object from fitting a contract, in words, its optional parts included."""
    protocol = protocol_of(contract.protocol)
    beyond = _beyond(protocol, type(value)) if contract.closed else ()
    return [*_methods(protocol, value, contract.may_lack, contract.free), *_optional(contract, value), *beyond]


def misfits_of_impl(contract: Contract, value: object, *, options: bool = False) -> list[str]:
    """Return what keeps a class, a function that makes objects, or an object from fitting a contract, in words.

    Of what only makes the objects, the arguments and the optional parts are looked at.

    Args:
        options: Where the protocol says nothing of its constructor, it is called with the plugin's options.
    """
    protocol = protocol_of(contract.protocol)
    wrong: list[str] = []
    makes = isinstance(value, type) or (callable(value) and "__init__" in vars(protocol) and _maker(value, protocol))
    if makes:
        wrong += against("__init__", without_self(constructor_of(protocol, options)), signature_of(value))
    if isinstance(value, type) or not makes:
        wrong += _methods(protocol, value, contract.may_lack, contract.free)
    wrong += _optional(contract, value)
    if contract.closed:
        wrong += _beyond(protocol, value)
    return wrong


def _optional(contract: Contract, value: object) -> Iterator[str]:
    for name in contract.optional:
        protocol = protocol_of(name)
        yield from _methods(protocol, value, frozenset(methods_of(protocol)))
    yield from _misspelt(contract, value)


def _misspelt(contract: Contract, value: object) -> Iterator[str]:
    """Yield the methods that are named nearly as an optional one, which core would never find."""
    optional = [name for one in contract.optional for name in methods_of(protocol_of(one))]
    known = {*methods_of(protocol_of(contract.protocol)), *optional}
    lacking = [name for name in optional if getattr(value, name, None) is None]
    kind = value if isinstance(value, type) else type(value)
    own = {name for base in kind.__mro__[:-1] for name, member in vars(base).items() if callable(member)}
    for name in sorted(one for one in own - known if not one.startswith("_")):
        for meant in get_close_matches(name, lacking, n=1, cutoff=_NEARLY):
            yield f"its {name}() is nearly {meant}(), an optional method: spell it so, or begin its name with _"


def _methods(
    protocol: type, value: object, may_lack: frozenset[str], free: frozenset[str] = frozenset()
) -> Iterator[str]:
    for name, member in methods_of(protocol).items():
        wanted = without_self(inspect.signature(getattr(member, "__func__", member)))
        found = getattr(value, name, None)
        if found is None:
            if name not in may_lack and not _comes_later(value, name):
                yield f"it lacks {name}{shown(wanted)}"
        elif not callable(found):
            if not isinstance(value, type) or not isinstance(found, property):
                yield f"its {name} is a {type(found).__name__}, not a method {name}{shown(wanted)}"
        elif name not in free:
            plain = isinstance(value, type) and inspect.isfunction(inspect.getattr_static(value, name))
            plain = plain and not isinstance(member, classmethod)
            signature = signature_of(found)
            yield from against(name, wanted, without_self(signature) if plain and signature else signature)


def _beyond(base: type, value: object) -> Iterator[str]:
    """Yield what a class has that its base class, which says all that is called, has not."""
    if not isinstance(value, type) or not issubclass(value, base):
        yield f"it is no subclass of {_public(base)}"
        return
    own = {name for kind in value.__mro__ if kind not in base.__mro__ for name in vars(kind)}
    odd = sorted(name for name in own - set(dir(base)) if not name.startswith("_") and callable(getattr(value, name)))
    if odd:
        known = ", ".join(sorted(methods_of(base)))
        yield f"it has {', '.join(odd)}, which nobody calls; methods are {known}, and helpers begin with _"


def _public(base: type) -> str:
    """Return the name under which a plugin imports a base class."""
    return (
        f"core.api.{base.__name__}" if base.__module__.startswith("core.api.") else f"{base.__module__}.{base.__name__}"
    )


def _comes_later(value: object, name: str) -> bool:
    """Whether objects of a class may have a method that the class has not: it is annotated, or looked up by name."""
    if not isinstance(value, type):
        return False
    annotated = any(name in vars(base).get("__annotations__", {}) for base in value.__mro__)
    return annotated or hasattr(value, "__getattr__")


def protocol_of(name: str) -> type:
    """Return a protocol, which is named by `module:name`."""
    module, _, attribute = name.partition(":")
    found: type = getattr(import_module(module), attribute)
    return found


def constructor_of(protocol: type, options: bool) -> inspect.Signature:
    """Return the signature of a protocol's constructor; one that says nothing of it takes the options, if any."""
    own = vars(protocol).get("__init__")
    if own is None or own.__module__ != protocol.__module__:
        names = ("self", "options") if options else ("self",)
        return inspect.Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in names])
    return inspect.signature(own)


def _maker(value: object, protocol: type) -> bool:
    """Whether an object that is no class makes objects of `protocol`, and is not one itself."""
    return not all(hasattr(value, name) for name in methods_of(protocol))
