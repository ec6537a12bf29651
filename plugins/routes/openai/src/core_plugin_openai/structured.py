"""Fields that say what the answer must look like, in every spelling that clients use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel

from core.api.bodies import invalid, up_to
from core.api.structured import MAX_CHOICES

_GUIDED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}


class StructuredFields(BaseModel):
    """Fields that ask for structured output: OpenAI's, vLLM's, and llama.cpp's `json_schema` and `grammar`."""

    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    json_schema: dict[str, Any] | bool | None = None
    grammar: str | None = None
    guided_json: dict[str, Any] | bool | str | None = None
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], up_to(MAX_CHOICES)] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None


class Form(NamedTuple):
    """Form that an answer must have.

    Attributes:
        structured: As `AnswerRequest.structured`.
        names: Names of it in errors, as `AnswerRequest.names`.
    """

    structured: Mapping[str, Any]
    names: Mapping[str, str]

    @property
    def field(self) -> str:
        """The body's field that asks for it."""
        return next(iter(self.names.values())).partition(".")[0]


def requested_form(body: StructuredFields) -> Form | None:
    """Return what the request wants its answer to look like; None for plain text.

    Raises:
        RequestError: 400, a field is wrong or two of them disagree; `param` names it.
    """
    forms = list(_forms(body))
    if len(forms) > 1:
        raise invalid(forms[1].field, f"cannot be used together with {forms[0].field}")
    return forms[0] if forms else None


def _forms(body: StructuredFields) -> Iterator[Form]:
    if body.response_format is not None and (form := response_form(body.response_format)) is not None:
        yield form
    if body.structured_outputs is not None and any(value not in (None, False) for value in _values(body)):
        yield Form(body.structured_outputs, {"structured": "structured_outputs"})
    if body.guided_whitespace_pattern is not None and body.guided_json is None:
        raise invalid("guided_whitespace_pattern", "needs guided_json")
    for field, name in _GUIDED.items():
        value = getattr(body, field)
        if value is not None and value is not False:
            yield _named(name, value, field, field, whitespace_pattern=_pattern(body, name))
    if body.json_schema is not None:
        yield _named("json", body.json_schema, "json_schema", "json_schema")
    if body.grammar:  # its default in llama.cpp is an empty text
        yield _named("grammar", body.grammar, "grammar", "grammar")


def _values(body: StructuredFields) -> list[Any]:
    return list((body.structured_outputs or {}).values())


def _pattern(body: StructuredFields, name: str) -> str | None:
    return body.guided_whitespace_pattern if name == "json" else None


def _named(kind: str, value: Any, field: str, whole: str, **styles: Any) -> Form:
    """Return a form of one kind.

    Args:
        field: What errors call its value.
        whole: The field that it belongs to.
    """
    said = {name: style for name, style in styles.items() if style is not None}
    return Form({kind: value, **said}, {"structured": whole, f"structured.{kind}": field})


def response_form(wanted: Mapping[str, Any], *, param: str = "response_format", nested: bool = True) -> Form | None:
    """Return the form of OpenAI's `response_format` or `text.format`; None for text.

    Args:
        nested: A schema and its name stand in a field of their own.

    Raises:
        RequestError: 400, the field that `param` begins with is wrong.
    """
    kind = wanted.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        # A schema beside it is llama.cpp's and Together's older way to ask for one.
        schema = wanted.get("schema")
        return _named("json", schema, f"{param}.schema", param) if schema else _named("json_object", True, param, param)
    if kind == "json_schema":
        form, where = (wanted.get("json_schema"), f"{param}.json_schema") if nested else (wanted, param)
        if not isinstance(form, Mapping):
            raise invalid(where, "must be an object with 'name' and 'schema'")
        if form.get("schema") is None:
            raise invalid(f"{where}.schema", "is missing")
        return _named("json", form["schema"], f"{where}.schema", param)
    if kind == "structural_tag":
        return _named("structural_tag", dict(wanted), param, param)
    known = "'text', 'json_object', 'json_schema' or 'structural_tag'"
    raise invalid(f"{param}.type", f"must be {known}")
