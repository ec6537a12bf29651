"""Requests as Ollama's clients send them. Numbers may be written as floats; unknown fields are let through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.api import RequestError
from core.api.bodies import SamplingBody

MAX_MESSAGES = 16384
MAX_TOOLS = 128
MAX_LIST = 4096


def up_to(most: int) -> Any:
    """Return the bound of a list: it, or the first member that is wrong, ends the check."""
    return Field(max_length=most, fail_fast=True)


class Part(BaseModel):
    """An object of a request."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


SAME_NAME = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "seed")
"""Ollama's options that core has under the same name, and no others of core: what Ollama does not know it lets through,
and so is done here."""


class Options(Part, SamplingBody, fields=SAME_NAME):
    """Those of Ollama's options that have a meaning here, and those that would change the answer if ignored.

    Plugins' sampling parameters are options as well; what else there is stays in `model_extra`, unread.
    """

    model_config = ConfigDict(extra="allow")

    num_predict: int | None = None
    stop: str | Annotated[list[str], up_to(MAX_LIST)] | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    typical_p: float | None = None
    tfs_z: float | None = None
    mirostat: int | None = None


class Named(Part):
    """A request about a model; `name` is what older clients call it."""

    model: str | None = None
    name: str | None = None

    @property
    def asked(self) -> str:
        """The model's name; empty where none is given."""
        return self.model or self.name or ""


class Streamed(Named):
    """A request whose answer may come line by line, which is the default."""

    stream: bool | None = None


class Generated(Streamed):
    """Fields that `/api/chat` and `/api/generate` share."""

    options: Options | None = None
    format: str | dict[str, Any] | None = None
    think: bool | str | None = None
    keep_alive: float | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None


class Function(Part):
    """A call of a function."""

    name: str
    arguments: dict[str, Any] = {}


class Call(Part):
    """A call in a message."""

    id: str | None = None
    function: Function


class Message(Part):
    """One message of a conversation."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: Annotated[list[Any], up_to(MAX_LIST)] | None = None
    tool_calls: Annotated[list[Call], up_to(MAX_TOOLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class ChatBody(Generated):
    """`POST /api/chat`."""

    messages: Annotated[list[Message], up_to(MAX_MESSAGES)] | None = None
    tools: Annotated[list[dict[str, Any]], up_to(MAX_TOOLS)] | None = None


class GenerateBody(Generated):
    """`POST /api/generate`."""

    prompt: str | None = None
    system: str | None = None
    template: str | None = None
    suffix: str | None = None
    raw: bool | None = None
    context: Any = None
    images: Annotated[list[Any], up_to(MAX_LIST)] | None = None


class EmbedBody(Named):
    """`POST /api/embed`."""

    input: str | Annotated[list[str], up_to(MAX_LIST)] | None = None
    truncate: bool | None = None
    dimensions: int | None = None


class EmbeddingsBody(Named):
    """`POST /api/embeddings`."""

    prompt: str | None = None


B = TypeVar("B", bound=BaseModel)


def read(kind: type[B], fields: Mapping[str, Any]) -> B:
    """Return a request. Raises `RequestError` that names the first field at fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise RequestError(f"{path}: {first['msg']}", param=path) from None
