"""`GenerationRequest`: what travels from a front end to the engine, and how its rules name a client's own fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.api.errors import RequestError
from core.api.requests import Caller
from core.api.sampling_params import SamplingParams
from core.api.sampling_table import FROM_MODEL
from core.frontend.beams.outputs import BeamRules
from core.frontend.caller import NOBODY
from core.frontend.conversation import Conversation
from core.frontend.prompts import Cut, PromptIds, PromptInput, Truncation

MAX_SALT = 256
MAX_REQUEST_ID = 128
_PRIORITIES = range(-(2**31), 2**31)
_REQUEST_ID = re.compile(r"[!-~]+")
_OWN = frozenset(SamplingParams.__struct_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One prompt, how it is continued, and how the request is treated.

    Made by a front end, completed on the way (`rendered`, `named`), and never taken apart: `Prepared` holds it when the
    engine is sent its messages.

    Attributes:
        prompt: A text, token ids, a prompt object, or a conversation.
        params: How tokens are chosen; the grammar of structured output is `params.grammar`.
        priority: Smaller runs earlier, under a policy that looks at it.
        cache_salt: Requests share cached prefixes only under the same salt.
        request_id: The client's own id.
        caller: Who sent it.
        truncation: What may be cut off a prompt that is too long; None refuses it.
        beams: Search for the `params.n` most likely sequences instead of sampling them.
        names: Field of a rule -> field of the front end, where they differ; for `error.param` (see `renamed`).
        rendered_ids: The token ids of a conversation, once it was rendered.
        engine_id: What the request is called while it is in flight, unique there; None: `request_id`, or a new name.

    Raises:
        RequestError: A value is outside its range; `param` is the front end's name of the field.
    """

    prompt: PromptInput | Conversation
    params: SamplingParams = field(default_factory=SamplingParams)
    priority: int = 0
    cache_salt: str | None = None
    request_id: str | None = None
    caller: Caller = NOBODY
    truncation: Truncation | None = None
    beams: BeamRules | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    rendered_ids: PromptIds | None = None
    engine_id: str | None = None

    def __post_init__(self) -> None:
        with spelling(self.names):
            if type(self.priority) is not int or self.priority not in _PRIORITIES:
                raise RequestError(f"priority must be a 32-bit integer, got {self.priority!r}", param="priority")
            if self.cache_salt is not None and not 0 < len(self.cache_salt) <= MAX_SALT:
                raise RequestError(f"cache_salt must have 1 to {MAX_SALT} characters", param="cache_salt")
            if self.request_id is not None and not _is_id(self.request_id):
                said = f"request_id must have 1 to {MAX_REQUEST_ID} printable ASCII characters without blanks"
                raise RequestError(said, param="request_id")

    def check_call(self) -> None:
        """Refuse a conversation that demands a call without a grammar that enforces it. Raises `RequestError`."""
        chat = self.conversation
        if chat is not None and chat.tool_choice.demands and self.params.grammar is None:
            said = (
                "tool_choice asks for a call, which cannot be enforced without structured output: use 'auto' or 'none'"
            )
            raise RequestError(said, param="tool_choice", code="unsupported_parameter")

    def rendered(self, ids: PromptIds, params: SamplingParams, engine_id: str | None = None) -> GenerationRequest:
        """Return the request with its conversation's token ids, and what the answer is held to.

        What is wrong with the ids is the fault of the messages, in the front end's word for them.
        """
        names = {"prompt": self.names.get("messages", "messages"), **self.names}
        return replace(self, rendered_ids=ids, params=params, engine_id=engine_id, names=names)

    def named(self, engine_id: str) -> GenerationRequest:
        """Return the request with the name that it has while it is in flight."""
        return replace(self, engine_id=engine_id)

    @property
    def conversation(self) -> Conversation | None:
        """The prompt, if a chat template must render it."""
        return self.prompt if isinstance(self.prompt, Conversation) else None

    @property
    def chat(self) -> Conversation:
        """The prompt, which must be a conversation. Raises `TypeError`."""
        if isinstance(self.prompt, Conversation):
            return self.prompt
        raise TypeError("only requests whose prompt is a Conversation are rendered")

    @property
    def cut(self) -> Cut | None:
        """How a conversation that is too long is cut."""
        return None if self.truncation is None else (self.truncation, self.params.max_tokens)


def sampling_params(fields: Mapping[str, Any], defaults: Mapping[str, Any], max_model_len: int) -> SamplingParams:
    """Return the parameters that a front end's fields give.

    Args:
        fields: By the names of `SamplingParams`, and of what plugins declare (`LogitsSpec.fields`), which become
            `extra_args`; None means that the client did not say.
        defaults: Used where the client did not say (`model_defaults`).

    Raises:
        RequestError: A value is outside its range; wrap the call in `spelling`.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    unsaid = {name: None for name in ("max_tokens",) if name in fields and fields[name] is None}
    said = {**defaults, **unsaid, **given}
    if further := said.keys() - _OWN:
        own = {name: said.pop(name) for name in further}
        asked = {name: own[name] for name in further & given.keys()}
        said["extra_args"] = {**own, **(said.get("extra_args") or {}), **asked}
    params = SamplingParams(**said)
    if params.min_tokens > max_model_len:
        raise RequestError(
            f"min_tokens ({params.min_tokens}) is greater than the model's length ({max_model_len})", param="min_tokens"
        )
    return params


def model_defaults(params: SamplingParams) -> dict[str, Any]:
    """Return what a model's makers recommend where a request says nothing, of plugins' fields too."""
    return {**{name: getattr(params, name) for name in FROM_MODEL}, **(params.extra_args or {})}


class spelling:  # noqa: N801 - read as a verb; a class costs a third of a generator, and requests pass a dozen
    """Let `RequestError`s raised inside name the front end's own fields.

    Args:
        names: Field of a rule -> field of the front end.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RequestError):
            found = renamed(error, self._names)
            if found is not error:
                raise found from error


def renamed(error: RequestError, names: Mapping[str, str]) -> RequestError:
    """Return the error as the front end's client would say it: `param` and, where the message names it, the message.

    A rule's `param` may go on with a path (`messages[2].content`): the first part is what is looked up.
    """
    head = re.match(r"\w+", error.param or "")
    if head is None or head[0] not in names:
        return error
    own = names[head[0]]
    message = re.sub(rf"\b{head[0]}\b", own.replace("\\", r"\\"), error.message)
    return error.reworded(message, own + (error.param or "")[head.end() :])


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_REQUEST_ID and _REQUEST_ID.fullmatch(value) is not None
