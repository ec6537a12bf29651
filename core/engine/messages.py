"""The only vocabulary between front end and engine core. Encoded with msgspec; never pickled.

Requests are known to the engine by an integer *handle* that its client chose; the client's own ids stay with it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from core.api.requests import Caller
from core.api.sampling_params import SamplingParams

# Ranges are checked where a message is decoded.
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Handle = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Priority = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Reason = Literal["stop", "length", "abort", "error"]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Add(msgspec.Struct, tag="add", kw_only=True):
    """Start a request.

    Attributes:
        handle: Unique among the client's live requests.
        prompt: int32 token ids, little endian.
        params: With `n == 1`; the front end makes one request per sequence.
        stop_ids: Ids that end it: `stop_token_ids` and, without `ignore_eos`, end-of-sequence ids.
        held_ids: Further ids that must not come before `min_tokens`: end-of-sequence ids under `ignore_eos`.
        cache_salt: Requests share cached prefixes only under the same salt.
        task: What it asks for; an engine refuses requests for any task but its own.
        caller: Who sent it.
        generated: int32 token ids, little endian, that an engine before this one sampled for it: the request goes on
            behind them, as a preempted one does. They are not sent again.
        parts: What front halves of participants and the task send their engine halves, by name.
    """

    handle: Handle
    prompt: bytes
    params: SamplingParams
    stop_ids: list[TokenId] = []
    held_ids: list[TokenId] = []
    priority: Priority = 0
    cache_salt: str | None = None
    task: str = "generate"
    caller: Caller = msgspec.field(default_factory=Caller)
    generated: bytes = b""
    parts: dict[str, Any] = {}


class Abort(msgspec.Struct, tag="abort"):
    """Forget these requests; no further output is sent for them."""

    handles: list[int]


class Call(msgspec.Struct, tag="call"):
    """Call a named engine method (`reset_prefix_cache`, `stats`, `update_weights`, ...) with plain data."""

    number: int
    method: str
    args: list[Any] = []


class Shutdown(msgspec.Struct, tag="shutdown"):
    """Stop. The engine aborts what is left and exits."""


ToEngine = Add | Abort | Call | Shutdown


class Logprobs(msgspec.Struct, array_like=True):
    """One position: the chosen token first, then the best alternatives."""

    ids: list[TokenId]
    values: list[float]
    rank: Count


class Finished(msgspec.Struct, array_like=True):
    """The end of a request.

    Attributes:
        reason: `stop`, `length`, `abort` or `error`.
        stop_id: The stop token id that ended it, if one did and it is not an end-of-sequence id.
        error: What went wrong, when reason is `error`.
        param: Field of the request that is at fault, when the error is the client's mistake.
        parts: What engine halves of participants and the task send their front halves, by name.
    """

    handle: Handle
    reason: Reason
    stop_id: int | None = None
    error: str | None = None
    param: str | None = None
    parts: dict[str, Any] = {}


class Started(msgspec.Struct, array_like=True):
    """A request was scheduled for the first time.

    Attributes:
        cached_tokens: Prompt tokens whose KV was there already.
        ago: Seconds between that and this message, which tells of its first step's end at the earliest.
    """

    handle: Handle
    cached_tokens: Count
    ago: Seconds = 0.0


class Stats(msgspec.Struct, kw_only=True):
    """Counters and gauges of the engine; counters grow for its whole life.

    Attributes:
        dropped_messages: Messages between the engine and its client, in either direction, that could not be read.
    """

    running: Count = 0
    waiting: Count = 0
    blocks_total: Count = 0
    blocks_used: Count = 0
    steps: Count = 0
    preemptions: Count = 0
    prompt_tokens_computed: Count = 0
    prefix_queries: Count = 0
    prefix_hits: Count = 0
    scheduled_tokens: Count = 0
    wasted_tokens: Count = 0
    blocks_freed_early: Count = 0
    dropped_messages: Count = 0


class Outputs(msgspec.Struct, tag="outputs", kw_only=True):
    """Outputs of one settled step, as arrays: request `handles[i]` got token `tokens[i]`.

    Attributes:
        handles: int64, little endian.
        tokens: int32, little endian.
        logprobs: Position in `tokens` -> its log-probabilities.
        prompt_logprobs: Handle -> further prompt positions, in order.
    """

    handles: bytes = b""
    tokens: bytes = b""
    logprobs: dict[int, Logprobs] = {}
    prompt_logprobs: dict[int, list[Logprobs]] = {}
    started: list[Started] = []
    finished: list[Finished] = []
    stats: Stats | None = None


class CallResult(msgspec.Struct, tag="result"):
    """Answer to a `Call`; `error` holds `CoreError.to_dict()` when it failed."""

    number: int
    value: Any = None
    error: dict[str, Any] | None = None


class Ready(msgspec.Struct, tag="ready", kw_only=True):
    """The engine can serve.

    Attributes:
        max_model_len: Longest request that can be served, in tokens.
        facts: Rows of the start-up table.
        timeline: `(phase, seconds)`.
    """

    num_blocks: Count
    block_size: Positive
    max_model_len: Positive
    facts: dict[str, str]
    timeline: list[tuple[str, float]]


class Progress(msgspec.Struct, tag="progress"):
    """Weight loading: `done` of `total` bytes."""

    done: Count
    total: Count


class Pulse(msgspec.Struct, tag="pulse"):
    """Nothing else is to be said: the process lives, whether or not its loop turns.

    Attributes:
        stalled: Seconds since the loop last began a turn.
        working: It waits for a step or runs a call, which may take their time.
        healthy: What the executor says of its workers.
    """

    stalled: Seconds
    working: bool = False
    healthy: bool = True


class Failed(msgspec.Struct, tag="failed"):
    """The engine cannot start or cannot go on; `error` holds `CoreError.to_dict()` and a `traceback`."""

    error: dict[str, Any]


FromEngine = Outputs | CallResult | Ready | Progress | Pulse | Failed
