"""Bodies of HTTP requests as pydantic models: typed fields, bounds that end a check early, fields that are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from core.api.errors import RequestError
from core.api.record import EMPTY
from core.api.sampling import MAX_TOKENS, SamplingField
from core.api.sampling_table import SAMPLING_FIELDS

MAX_MESSAGES = 16384
"""Most messages, and blocks of a message, of one conversation."""

MAX_TOOLS = 128
"""Most tools of one request."""

MAX_NAME = 256
"""Most characters of a name or an id."""

Priority = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Salt = Annotated[str, Field(min_length=1, max_length=256)]


def up_to(most: int, least: int = 0) -> Any:
    """Return the bounds of a list: they, or the first member that is wrong, end the check."""
    return Field(min_length=least, max_length=most, fail_fast=True)


def few(most: int) -> BeforeValidator:
    """Return the bound of an object, which holds before its members are looked at."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            raise PydanticCustomError(
                "too_long",
                "Object should have at most {most} members, not {found}",
                {"most": most, "found": len(value)},
            )
        return value

    return BeforeValidator(check)


class BodyPart(BaseModel):
    """An object inside a body: unknown fields are let through, wrong types refused."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)


class Body(BodyPart):
    """A request body: unknown fields are let through and reported, wrong types refused, null means not given.

    Attributes:
        refused: Fields that would change the answer if they were ignored, and what to say about each.
        model: Name of the model that is asked.
    """

    refused: ClassVar[Mapping[str, str]] = {}

    model: str | None = None

    @classmethod
    def refuse_unsupported(cls, fields: Mapping[str, Any]) -> None:
        """Refuse fields that ask for something the server cannot do. Raises `RequestError`."""
        for name in cls.refused.keys() & fields.keys():
            if not cls.harmless(name, fields):
                raise RequestError(f"{name}: {cls.refused[name]}.", param=name, code="unsupported_parameter")

    @classmethod
    def harmless(cls, name: str, fields: Mapping[str, Any]) -> bool:
        """Whether a refused field asks for nothing, as it was sent."""
        return not fields[name]


TokenId = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
TokenKey = Annotated[int, Field(strict=False, ge=0, le=MAX_TOKENS)]

_TYPES: Mapping[str, Any] = MappingProxyType(
    {"number": float, "integer": int, "boolean": bool, "object": dict[str, Any]}
)


class SamplingBody(BaseModel):
    """A body, or a part of one, with parameters of `SAMPLING_FIELDS` under their own names.

    Named in the class statement they are fields as any other, None where they are not said; their ranges are checked
    with the request, whoever the front end is:

        class Options(BodyPart, SamplingBody, fields=("temperature", "top_p")):
            num_predict: int | None = None

    Attributes:
        sampling_names: Those that it has.
    """

    sampling_names: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init_subclass__(cls, *, fields: Collection[str] = (), **more: Any) -> None:
        """Add the fields, before pydantic looks at the class. Raises `KeyError` for names that the table lacks."""
        super().__init_subclass__(**more)
        cls.__annotations__ = {**{name: body_type(SAMPLING_FIELDS[name]) for name in fields}, **cls.__annotations__}
        for name in fields:
            setattr(cls, name, Field(None, json_schema_extra=_described(SAMPLING_FIELDS[name])))
        cls.sampling_names = (*cls.sampling_names, *fields)

    def sampling(self, sent: Mapping[str, Any] = EMPTY, further: Collection[str] = ()) -> dict[str, Any]:
        """Return what it says of sampling, as `ChatRequest.sampling` takes it.

        Args:
            sent: The object as it was sent.
            further: Parameters of plugins (`EngineClient.plugin_fields`), which are taken from there: core checks them.
        """
        said = {name: getattr(self, name) for name in self.sampling_names}
        fields = type(self).model_fields
        return said | {name: sent[name] for name in further if name in sent and name not in fields}


def _described(field: SamplingField) -> dict[str, Any]:
    return {name: value for name, value in field.schema.items() if name not in ("type", "default")}


def body_type(field: SamplingField) -> Any:
    """Return the annotation of a body's field for a sampling parameter, whose range is left to core's check."""
    if field.type == "biases":
        return Annotated[dict[TokenKey, float], few(field.most or 0)] | None
    if field.type == "tokens":
        return Annotated[list[TokenId], up_to(field.most or 0)] | None
    if field.type == "texts":
        texts = Annotated[list[str], up_to(field.most or 0)]
        return str | texts | None if field.single else texts | None
    return _TYPES[field.type] | None


def invalid(param: str, why: str, *, code: str | None = None) -> RequestError:
    """Return the refusal of a field; `why` goes on where its name ends, without a full stop."""
    return RequestError(f"{param} {why}.", param=param, code=code)


# Fields of objects inside a body that no model describes: given are the object, the field's name, and where in the body
# the object stands. All raise `RequestError`, naming the field at fault.


def text_field(item: Mapping[str, Any], field: str, where: str) -> str:
    """Return a text that must be there."""
    value = item.get(field)
    if not isinstance(value, str):
        raise invalid(f"{where}.{field}", "must be a text")
    return value


def optional_text(item: Mapping[str, Any], field: str, where: str) -> str | None:
    """Return a text, or None where there is none."""
    return None if item.get(field) is None else text_field(item, field, where)


def name_field(item: Mapping[str, Any], field: str, where: str) -> str:
    """Return a name or an id: a short text that is not empty."""
    value = item.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise invalid(f"{where}.{field}", f"must be a text of 1 to {MAX_NAME} characters")
    return value
