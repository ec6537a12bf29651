"""Serving: how a route plugin has the running engine generate, and how its answer goes out. Provisional.

A request goes in as data, what the model says comes out as events, and bytes leave through an outlet: in the turn in
which a step's result comes, without a task that has to be woken. OpenAI's shapes of messages and tools are the common
form of conversations, because chat templates are written for them; an API with another form translates its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, Protocol

from core.api.errors import RequestError

if TYPE_CHECKING:
    from core.api.parsers import ParseEvent


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may, must or must not call.

    Attributes:
        mode: `auto`: it may; `none`: it must not; `required`: it must call some tool; `function`: that of `name`.
        name: The function that mode `function` demands.
    """

    mode: Literal["auto", "none", "required", "function"] = "auto"
    name: str | None = None

    @property
    def demands(self) -> bool:
        """Whether the model must call."""
        return self.mode in ("required", "function")

    @classmethod
    def read(cls, given: str | Mapping[str, Any] | None) -> ToolChoice:
        """Return what OpenAI's `tool_choice` says. Raises `RequestError`."""
        if given is None:
            return AUTO
        if isinstance(given, str) and given in _MODES:
            return _MODES[given]
        function = given.get("function") if isinstance(given, Mapping) and given.get("type") == "function" else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str):
            said = "tool_choice must be 'none', 'auto', 'required' or {'type': 'function', 'function': {'name': ...}}"
            raise RequestError(said, param="tool_choice")
        return cls("function", name)


AUTO = ToolChoice()
_MODES = {"auto": AUTO, "none": ToolChoice("none"), "required": ToolChoice("required")}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """How a prompt is answered; what there is to answer is in `ChatRequest` and `TextRequest`.

    Attributes:
        sampling: Sampling parameters by the names of `core.SamplingParams`, and of `EngineClient.plugin_fields`; None
            is not said, and the server's defaults hold then.
        structured: What the text must be, by the fields of `structured_outputs`: `json` (a schema), `json_object`, ...
        beams: Search for the `n` most likely sequences instead of sampling them; its `length_penalty` and
            `early_stopping`, as far as they are said. None: sample.
        fitted: As many tokens as the model's length leaves room for, where more are asked for; else that is refused.
        truncate_prompt_tokens: Tokens to which a prompt is cut instead of being refused, -1 for what the output leaves.
        truncation_side: Which end of it is cut off.
        interval: Tokens of a sequence that are gathered per delta.
        priority: Smaller runs earlier, under a policy that looks at it.
        cache_salt: Requests share cached prefixes only under the same salt.
        user: Whom the body names as its user.
        request_id: The client's own name of the request, which the answer's `id` then ends with.
        names: Field of a rule -> the API's own field, for errors: of these classes, those of `sampling`, and
            `structured.json`.
    """

    sampling: Mapping[str, Any] = field(default_factory=dict)
    structured: Mapping[str, Any] | None = None
    beams: Mapping[str, Any] | None = None
    fitted: bool = False
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    interval: int = 1
    priority: int = 0
    cache_salt: str | None = None
    user: str | None = None
    request_id: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest(AnswerRequest):
    """A conversation, which the model's chat template renders; its answer is read by the output parsers.

    Attributes:
        messages: OpenAI's messages.
        tools: OpenAI's tools.
        tool_choice: Which tools may, or must, be called.
        parallel_tool_calls: Whether an answer may hold more than one call.
        documents: OpenAI's documents, for templates that show them.
        continued: The answer goes on with the last message.
        opened: The prompt ends with the start of the assistant's turn, unless the answer goes on with a message.
        add_special_tokens: The tokenizer adds its own special tokens; templates usually write them.
        template: A chat template instead of the model's own: one of its names, or where that is allowed Jinja source.
        thinking: Whether the model thinks before it answers; None leaves that to its template.
        template_args: Further variables that the chat template reads.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = AUTO
    parallel_tool_calls: bool = True
    documents: Sequence[Mapping[str, Any]] | None = None
    continued: bool = False
    opened: bool = True
    add_special_tokens: bool = False
    template: str | None = None
    thinking: bool | None = None
    template_args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest(AnswerRequest):
    """Prompts that the model continues as they are.

    Attributes:
        prompts: Texts, or token ids.
        add_special_tokens: The tokenizer adds its own special tokens to texts.
        only_prompt: Nothing is added: the prompts are computed, so that they are cached and, if that is asked for,
            scored.
    """

    prompts: Sequence[str | Sequence[int]]
    add_special_tokens: bool = True
    only_prompt: bool = False


@dataclass(slots=True)
class Usage:
    """Tokens of one answer.

    Attributes:
        prompt: Of the prompts.
        completion: That were generated.
        cached: Of the prompts', those that came from the prefix cache.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """Why a sequence ended.

    Attributes:
        reason: `stop`, `length`, or `abort`: an operator ended it.
        stop: The stop text or the stop token that ended it, if one did.
        told: What participants say of the sequence, by their names, as plain data; an array is the base64 of a `.npy`
            file.
    """

    reason: str
    stop: str | int | None = None
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Timings:
    """How long an answer took, in seconds since its request was admitted.

    Attributes:
        first_token: Until its first token.
        total: Until now.
    """

    first_token: float
    total: float


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token and its log-probability.

    Attributes:
        id: Its id.
        token: Its own text, in which U+FFFD stands for bytes that are no whole character.
        bytes: The bytes that it adds to the text.
        logprob: Natural logarithm of its probability; -9999 for none at all, as JSON has no infinity.
        rank: 1 for the most likely token; None where that is not known.
        top: The most likely tokens in its place, best first, and behind them those of `logprob_token_ids`.
    """

    id: int
    token: str
    bytes: Sequence[int]
    logprob: float
    rank: int | None = None
    top: Sequence[TokenScore] = ()


class Prompt(Protocol):
    """A prompt as the engine has it.

    Attributes:
        ids: Its tokens.
        text: As it was given, or what the tokens say, special ones too.
        scores: Of its tokens, where `sampling` asks for `prompt_logprobs`; None stands for the first token's.
    """

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def text(self) -> str: ...

    @property
    def scores(self) -> Sequence[TokenScore | None]: ...


@dataclass(slots=True)  # one for every token of every stream: a frozen one takes three times as long to make
class Delta:
    """Output of one step for one sequence.

    Attributes:
        index: Which of the answer's sequences: sequence `s` of prompt `p` is `p * n + s`.
        events: What the model said, as the output parser read it; text is `Text`.
        token_ids: The tokens of it.
        finish: Why it ended; None while it runs.
        scores: Of its tokens, where `sampling` asks for `logprobs`.
    """

    index: int
    events: Sequence[ParseEvent]
    token_ids: Sequence[int]
    finish: Finish | None = None
    scores: Sequence[TokenScore] = ()


Take = Callable[[Sequence[Delta]], bool]
"""Takes what a step brought; False: `More` is asked before the next."""

More = Callable[[], Awaitable[bool]]
"""Returns once there is room for more; False: nothing more is wanted."""


class Answer(Protocol):
    """The answer to a request, which has been checked and rendered; nothing is sent to the engine before `run`.

    Attributes:
        id: Its name: the prefix that it was opened with, and what makes it unique.
        usage: Grows while it runs.
        fitted: Its limit of tokens was lowered to what the model's length leaves.
        timings: Up to now.
        prompts: What is continued, by the prompt's number, once something of it has come.
    """

    @property
    def id(self) -> str: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def fitted(self) -> bool: ...

    @property
    def timings(self) -> Timings: ...

    @property
    def prompts(self) -> Mapping[int, Prompt]: ...

    def call_id(self, name: str, number: int) -> str:
        """Return the id of the answer's `number`-th call, of a function, as the model's format writes them."""
        ...

    async def run(self, take: Take, more: More | None = None) -> None:
        """Generate, and give everything to `take` in the turn in which it comes; cancelling it ends the generation.

        Args:
            more: Asked when `take` has returned False; None: nothing more is wanted then, and the generation ends.

        Raises:
            RequestError: The server takes no more, or the generation failed, with whose fault it is as its status;
                and what `take` and `more` raise.
        """
        ...


class Outlet(Protocol):
    """Takes the bytes of a stream."""

    def put(self, data: bytes) -> bool:
        """Take data; False: `room` has to be awaited before the next."""
        ...

    async def room(self) -> None:
        """Send what was kept, and return once there is room for more."""
        ...


class Job(Protocol):
    """Work whose result can be had at once or bit by bit."""

    async def collect(self) -> bytes:
        """Do all of it and return the JSON answer."""
        ...

    async def stream(self, outlet: Outlet) -> None:
        """Put encoded events into an outlet as they come, but for what the dialect puts at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """An endpoint's answer that is generated: core runs the job, until it ends, its client goes, or the server stops.

    Errors before the first byte become an HTTP status, later ones the end of the stream, in the route's dialect.

    Attributes:
        job: What makes the answer.
        stream: As server-sent events, or as `media_type` says, instead of as one JSON object.
        headers: Further headers.
        media_type: Of a stream.
        dialect: How this stream ends and says errors; None: as the route's path says them.
    """

    job: Job
    stream: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "text/event-stream"
    dialect: Dialect | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an API says errors, and how its streams end.

    Attributes:
        body: Returns the JSON object of an error.
        status: Returns its HTTP status.
        end: What a stream ends with, after an error too.
        failed: Returns what a stream that broke off ends with, before `end`; None: an event `error` with the object.
    """

    body: Callable[[RequestError], Mapping[str, Any]]
    status: Callable[[RequestError], int] = attrgetter("status")
    end: bytes = b""
    failed: Callable[[RequestError], bytes] | None = None


def error_object(error: RequestError) -> dict[str, Any]:
    """Return the JSON object of an error as a server says it that has no dialect of a plugin's: as OpenAI's API."""
    said = {"message": error.message, "type": error_type(error.status), "param": error.param, "code": error.code}
    return {"error": said}


def error_type(status: int) -> str:
    """Return the `type` of that object, which goes with a status."""
    if status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return "invalid_request_error"
    return "service_unavailable_error" if status == HTTPStatus.SERVICE_UNAVAILABLE else "server_error"
