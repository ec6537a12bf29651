"""Records: frozen data whose fields are checked against their annotations when it is made.

Descriptors are records, not pydantic models, because every command reads them: importing pydantic, and building a
model for each kind, takes longer than all the rest of a catalogue. Options of plugins, which users write, are pydantic
models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

EMPTY: Mapping[Any, Any] = MappingProxyType({})
"""Default of a field that is a mapping."""

_COLLECTIONS = (list, tuple, set, frozenset)


class Between(NamedTuple):
    """Limits of a number, both included: `Annotated[int, Between(0, 100)]`."""

    least: int
    most: int


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """Base of frozen data with keyword arguments only, made by its annotations as a dataclass is.

    Fields may be `str`, `int`, `float`, `bool`, `Literal`, records, `tuple[X, ...]`, `frozenset[X]`, `Mapping[K, V]`,
    `X | None` and unions of plain types, as `int | float`. Lists and sets become what the annotation says, mappings are
    copied; nothing else is converted.

    Raises:
        TypeError: A field is missing or unknown.
        ValueError: Values are not what their annotations say; every field that is wrong is named.
    """

    def __init__(self, **values: Any) -> None:
        kind: Any = type(self)
        fields, name = _fields(kind), kind.__name__
        if unknown := sorted(values.keys() - fields.keys()):
            raise TypeError(f"{name} has no field {', '.join(unknown)}")
        if missing := [field for field in fields if field not in values and not hasattr(kind, field)]:
            raise TypeError(f"{name} lacks {', '.join(missing)}")
        faults = []
        for field, hint in fields.items():
            try:
                self.__dict__[field] = _settled(hint, values[field] if field in values else getattr(kind, field))
            except ValueError as error:
                faults.append(f"{field}: {error}")
        if faults := faults or list(self._faults()):
            raise ValueError(f"{name}: {'; '.join(faults)}")

    def _faults(self) -> Iterable[str]:
        """Return what is wrong with the values together, once each of them fits its annotation."""
        return ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; raises as making one does."""
        return type(self)(**{**vars(self), **changes})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: tuples are lists, sets are sorted lists. `cls(**data)` gives an equal record."""
        return {name: _plain(value) for name, value in vars(self).items()}


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """Return the annotation of every field, those of the bases first."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def _settled(hint: Any, value: Any) -> Any:
    """Return `value` in the form that `hint` asks for; raises `ValueError` with what is wrong."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bounded(_settled(inner[0], value), inner[1])
    if origin in (Union, UnionType):
        wanted = [member for member in inner if member is not NoneType]
        if value is None and len(wanted) < len(inner):
            return None
        return _settled(wanted[0], value) if len(wanted) == 1 else _one_of(wanted, value)
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in inner):
            raise ValueError(f"{value!r} is none of {', '.join(map(repr, inner))}")
        return value
    if origin in (tuple, frozenset) and isinstance(value, _COLLECTIONS):
        return origin(_settled(inner[0], one) for one in value)
    if origin is Mapping and isinstance(value, Mapping):
        return {_settled(inner[0], key): _settled(inner[1], one) for key, one in value.items()}
    return _single(origin or hint, value)


def _bounded(value: Any, limits: Between) -> Any:
    if not limits.least <= value <= limits.most:
        raise ValueError(f"{value!r} is not between {limits.least} and {limits.most}")
    return value


def _single(kind: type, value: Any) -> Any:
    if issubclass(kind, Record) and isinstance(value, Mapping):
        return kind(**value)
    # A bool is an int to Python, but a slip in a descriptor.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is a {type(value).__name__}, not a {kind.__name__}")
    return value


def _one_of(kinds: Sequence[type], value: Any) -> Any:
    if type(value) not in kinds:
        raise ValueError(f"{value!r} is a {type(value).__name__}, not a {' or '.join(kind.__name__ for kind in kinds)}")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, frozenset):
        return [_plain(one) for one in sorted(value)]
    return [_plain(one) for one in value] if isinstance(value, tuple) else value
