"""The public interface as data: `python tools/api_snapshot.py [--update]`.

Without a flag the interface is compared with `tests/api/snapshot.json` and every difference is printed; `--update`
writes the file anew, which is how a change is made on purpose. What is recorded: every name of `core.api` with its
signature, fields or methods, the hook specifications, the API integers and tiers, and the public names of
`core_testing` and `core_tokenizers`.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import importlib
import inspect
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from core.api.record import Record
from core.plugins.kinds import KINDS

SNAPSHOT = Path(__file__).parents[1] / "tests" / "api" / "snapshot.json"
COMMAND = "python tools/api_snapshot.py --update"
REQUIRED = "required"

Flat = dict[str, str]
"""Dotted name -> what it is, in one line."""


def interface() -> Flat:
    """Return the public interface as it is now."""
    flat: Flat = dict(_versions())
    api = importlib.import_module("core.api")
    for name in api.__all__:
        flat.update(_described(f"core.api.{name}", getattr(api, name)))
    for name, function in vars(importlib.import_module("core.api.hooks")).items():
        if name.startswith("core_"):
            first = getattr(function, "core_spec", {}).get("firstresult")
            flat[f"hook {name}"] = _signature(function) + (" first result" if first else "")
    for module in [*_modules("core_testing"), importlib.import_module("core_tokenizers")]:
        for name, value in _public(module):
            flat.update(_described(f"{module.__name__}.{name}", value))
    return dict(sorted(flat.items()))


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return one line for every name that came, went or changed."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            lines.append(f"- {name}: {old[name]}")
        elif name not in old:
            lines.append(f"+ {name}: {new[name]}")
        elif old[name] != new[name]:
            lines.append(f"~ {name}: {old[name]}  ->  {new[name]}")
    return lines


def _versions() -> Iterator[tuple[str, str]]:
    for group, kind in KINDS.items():
        yield f"API {group}", f"{kind.api} {kind.tier}"


def _modules(package: str) -> Iterator[Any]:
    """Yield a package's public modules; those of the conformance kit's own tools and areas are no interface."""
    root = importlib.import_module(package)
    for info in pkgutil.iter_modules(root.__path__):
        if not info.name.startswith("_"):
            yield importlib.import_module(f"{package}.{info.name}")


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    listed = getattr(module, "__all__", None)
    for name, value in sorted(vars(module).items()):
        mine = getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
        if name in listed if listed is not None else mine:
            yield name, value


def _described(name: str, value: Any) -> Flat:
    """Return a name and, if it is a class, its members."""
    if not inspect.isclass(value):
        return {name: _signature(value) if inspect.isfunction(value) else _value(value)}
    flat = {name: f"{_kind(value)}({', '.join(base.__name__ for base in value.__bases__ if base is not object)})"}
    members = dict(_fields(value))
    for member, attribute in vars(value).items():
        if member in members or (member.startswith("_") and member != "__init__"):
            continue
        members.update(_member(member, attribute, generated=_generated(value)))
    flat.update({f"{name}.{member}": text for member, text in members.items()})
    return flat


def _value(value: Any) -> str:
    """Return a constant: what it holds if that is plain, else its type."""
    plain = isinstance(value, (str, int, tuple, frozenset))
    return f"value {_default(value)}" if plain else f"value {type(value).__name__}"


def _kind(value: type) -> str:
    if getattr(value, "_is_protocol", False):
        return "protocol"
    if issubclass(value, (BaseModel, Record)):
        return "model" if issubclass(value, BaseModel) else "record"
    if dataclasses.is_dataclass(value):
        return "dataclass"
    return "enum" if issubclass(value, enum.Enum) else "class"


def _generated(value: type) -> bool:
    return dataclasses.is_dataclass(value) or issubclass(value, (BaseModel, Record))


def _fields(value: type) -> Iterator[tuple[str, str]]:
    if issubclass(value, enum.Enum):
        for member in value:
            yield member.name, f"member {member.value!r}"
    elif issubclass(value, BaseModel):
        for name, info in value.model_fields.items():
            yield name, f"field {_annotation(value, name)} = {_default(info.get_default(call_default_factory=True))}"
    elif issubclass(value, Record):
        for name in _written(value):
            yield name, f"field {_annotation(value, name)} = {_default(getattr(value, name, dataclasses.MISSING))}"
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            made = field.default_factory is not dataclasses.MISSING
            default = "made" if made else _default(field.default)
            yield field.name, f"field {field.type} = {default}"
    else:
        for name, annotation in vars(value).get("__annotations__", {}).items():
            if not name.startswith("_"):
                yield name, f"attribute {getattr(annotation, '__forward_arg__', annotation)}"


def _written(value: type) -> list[str]:
    """Return the annotated names of a class and its bases, the bases' first, without class variables."""
    found = {name: text for base in reversed(value.__mro__) for name, text in inspect.get_annotations(base).items()}
    return [name for name, text in found.items() if not str(text).startswith("ClassVar")]


def _annotation(value: type, name: str) -> str:
    """Return the annotation as it was written, by whichever base wrote it."""
    for base in value.__mro__:
        if name in vars(base).get("__annotations__", {}):
            return str(vars(base)["__annotations__"][name])
    return "?"


def _default(value: Any) -> str:
    if value is PydanticUndefined or value is dataclasses.MISSING:
        return REQUIRED
    if inspect.isfunction(value):
        return value.__name__
    return f"{{{', '.join(sorted(map(repr, value)))}}}" if isinstance(value, (set, frozenset)) else repr(value)


def _member(name: str, attribute: Any, *, generated: bool) -> Flat:
    if isinstance(attribute, (staticmethod, classmethod)):
        return {name: f"{type(attribute).__name__} {_signature(attribute.__func__)}"}
    if isinstance(attribute, property):
        return {name: f"property -> {inspect.signature(attribute.fget).return_annotation}" if attribute.fget else ""}
    # Dataclasses, models and protocols without a constructor of their own get one that says nothing new.
    made = name == "__init__" and (generated or attribute.__module__ == "typing")
    if inspect.isfunction(attribute) and not made:
        return {name: _signature(attribute)}
    return {}


def _signature(function: Any) -> str:
    return ("async " if inspect.iscoroutinefunction(function) else "") + str(inspect.signature(function))


def main() -> int:
    """Compare or update; the status is 1 when the interface differs from the file."""
    parser = argparse.ArgumentParser(description="Compare the public interface with its snapshot.")
    parser.add_argument("--update", action="store_true", help="Write the snapshot anew.")
    update = parser.parse_args().update
    old: Flat = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}
    new = interface()
    lines = differences(old, new)
    if update:
        SNAPSHOT.write_text(json.dumps(new, indent=1, ensure_ascii=False) + "\n")
    print("\n".join(lines) or "the public interface is as recorded")
    if update:
        return 0
    if lines:
        print(f"\nIf the change is meant: {COMMAND}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
