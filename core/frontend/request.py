"""`GenerationRequest`: what travels from a front end to the engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.api.errors import RequestError
from core.api.requests import Caller
from core.api.sampling_params import SamplingParams
from core.frontend.beams.outputs import BeamRules
from core.frontend.caller import NOBODY
from core.frontend.conversation import Conversation
from core.frontend.prompts import Cut, PromptIds, PromptInput, Truncation
from core.frontend.spelling import spelling

MAX_SALT = 256
MAX_REQUEST_ID = 128
_PRIORITIES = range(-(2**31), 2**31)
_REQUEST_ID = re.compile(r"[!-~]+")


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


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_REQUEST_ID and _REQUEST_ID.fullmatch(value) is not None
