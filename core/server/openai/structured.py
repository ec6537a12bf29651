"""Fields that say what the answer must look like, in every spelling that clients use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel

from core.api.bodies import invalid, up_to
from core.engine.participants.grammars import MAX_CHOICES, Grammar, schema_grammar, structured_output

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


def requested_grammar(body: StructuredFields) -> Grammar | None:
    """Return what the request wants its answer to look like; None for plain text.

    Raises:
        ApiError, RequestError: 400, a field is wrong or two of them disagree; `param` names it.
    """
    grammars = list(_grammars(body))
    if len(grammars) > 1:
        first, second = (grammar.param.partition(".")[0] for grammar in grammars[:2])
        raise invalid(second, f"cannot be used together with {first}")
    return grammars[0] if grammars else None


def _grammars(body: StructuredFields) -> Iterator[Grammar]:
    if body.response_format is not None and (grammar := response_grammar(body.response_format)) is not None:
        yield grammar
    if body.structured_outputs is not None and (grammar := structured_output(body.structured_outputs)) is not None:
        yield grammar
    if body.guided_whitespace_pattern is not None and body.guided_json is None:
        named = "guided_whitespace_pattern"
        raise invalid(named, "needs guided_json")
    for field, name in _GUIDED.items():
        value = getattr(body, field)
        if value is not None:
            style = {"whitespace_pattern": body.guided_whitespace_pattern} if name == "json" else {}
            grammar = structured_output({name: value, **style}, param=field)
            if grammar is not None:
                yield grammar.replace(param=field)
    if body.json_schema is not None:
        yield schema_grammar(body.json_schema, param="json_schema")
    if body.grammar:  # its default in llama.cpp is an empty text
        yield Grammar("grammar", body.grammar, param="grammar")


def response_grammar(
    wanted: Mapping[str, Any], *, param: str = "response_format", nested: bool = True
) -> Grammar | None:
    """Return the grammar of OpenAI's `response_format` or `text.format`; None for text.

    Args:
        nested: A schema and its name stand in a field of their own.

    Raises:
        ApiError, RequestError: 400, the field that `param` begins with is wrong.
    """
    kind = wanted.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        # A schema beside it is llama.cpp's and Together's older way to ask for one.
        schema = wanted.get("schema")
        return schema_grammar(schema, param=f"{param}.schema") if schema else Grammar("json_object", param=param)
    if kind == "json_schema":
        form, where = (wanted.get("json_schema"), f"{param}.json_schema") if nested else (wanted, param)
        if not isinstance(form, Mapping):
            raise invalid(where, "must be an object with 'name' and 'schema'")
        if form.get("schema") is None:
            raise invalid(f"{where}.schema", "is missing")
        return schema_grammar(form["schema"], param=f"{where}.schema")
    if kind == "structural_tag":
        grammar = structured_output({"structural_tag": dict(wanted)}, param=param)
        return None if grammar is None else grammar.replace(param=param)
    known = "'text', 'json_object', 'json_schema' or 'structural_tag'"
    raise invalid(f"{param}.type", f"must be {known}")
