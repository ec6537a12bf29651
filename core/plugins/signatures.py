"""Signatures: whether what has one can be called as another says, with its names and its places."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

Parameter = inspect.Parameter


def of_names(*names: str) -> inspect.Signature:
    """Return the signature of what takes these arguments, by place or by name."""
    return inspect.Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names])


def signature_of(value: Any) -> inspect.Signature | None:
    """Return a callable's signature; None for one that does not tell."""
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return None


def without_self(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature of a method as it is called on an object."""
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def against(name: str, wanted: inspect.Signature, found: inspect.Signature | None) -> Iterator[str]:
    """Yield why what has the signature `found` cannot be called as `wanted` says; None: nobody can tell."""
    if found is None:
        return
    try:
        for everything in (False, True):
            positional, named = _call(wanted, everything)
            found.bind(*positional, **named)
    except TypeError as error:
        yield f"{name}{shown(wanted)} is called, but its signature is {name}{shown(found)} ({error})"


def _call(wanted: inspect.Signature, everything: bool) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of a call with everything, or with what has no default."""
    positional, named = [], {}
    for parameter in wanted.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD or (parameter.default is not Parameter.empty and not everything):
            continue
        if parameter.kind is Parameter.KEYWORD_ONLY:
            named[parameter.name] = parameter.name
        elif parameter.kind is not Parameter.VAR_POSITIONAL or everything:
            positional.append(parameter.name)
    return positional, named


def shown(signature: inspect.Signature) -> str:
    """Return the parameters without annotations."""
    bare = [one.replace(annotation=Parameter.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(bare))
