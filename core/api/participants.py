"""Participants: features that take part in every step, in up to three halves. Provisional.

The engine's loop is `admit -> place -> plan -> launch -> collect -> settle`. A participant overrides the moments of it
that concern it. Its engine half lives beside the scheduler, its worker half beside the model, its front
half where requests arrive; all but the engine half are optional. What they tell each other travels as *parts*, by the
participant's name:

    Add.parts          front half -> engine half, once a request
    StepPlan.parts     engine half -> worker half, with a step's plan
    late parts         engine half -> worker half, while that step's forward pass runs
    StepResult.parts   worker half -> engine half
    Finished.parts     engine half -> front half, with the end of a request

Moments are bound once, when the engine starts: one that a class does not override is never called, and an engine
without participants calls nothing. Every public method of a half is one of its moments; a method of any other name is
an error at the start, so give helpers a leading underscore.

Rules that keep requests from waiting for each other forever:

1. A request that does not run holds nothing that others may need, except the one that has been held back longest
   (`request.first`). Take in `run`, give back in `leave` and `finish`; `admit` only asks, and orders work.
2. Never give anybody what `request.first` needs.
3. Plans run in order, so what a request held until a step is free for others from the next `plan` on: give back when
   the plan that uses it last is made, never when its result arrives, which may belong to a life before a preemption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from core.api.kinds import AskChosen, Chosen, nobody, unwritten
from core.api.layers import StepInputs

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.attention import BatchView
    from core.api.requests import Caller
    from core.api.sampling_params import SamplingParams
    from core.api.steps import StepPlan, StepResult
    from core.api.tokenizer import Tokenizer

Stat = int | list[int]
"""A figure, or figures by place."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The types of a participant's parts: `bytes`, or a `msgspec.Struct` or dataclass of plain data and numpy arrays.

    Attributes:
        add, plan, late, result, finished: As in the table at the head of this module; None: it sends none.
    """

    add: type | None = None
    plan: type | None = None
    late: type | None = None
    result: type | None = None
    finished: type | None = None


@dataclass(frozen=True, slots=True)
class BlockRef:
    """The keys and values of `block_size` tokens of a request: one full block of each cache group.

    Most models have a single group. One whose layers keep different pasts (sliding windows beside full attention) has
    several: their layers share the worker's caches, and each group has blocks of its own there.

    Attributes:
        index: Its place in the request's sequence, from 0.
        hash: Chained hash: of its tokens and of everything before them.
        blocks: Number of the device block of each cache group, `cache[block]` in the worker; 0 for a group that reads
            nothing there any more, whose content is neither there nor needed.
    """

    index: int
    hash: bytes
    blocks: tuple[int, ...]

    @property
    def held(self) -> tuple[int, ...]:
        """The blocks that are there: those of `blocks` that are not 0."""
        return tuple(block for block in self.blocks if block)


class StagedRequest(Protocol):
    """A request as participants see it. Read only, but for `hash_root` and `extras` in `arrive`.

    Attributes:
        handle: Its number, unique among live requests.
        row: The row it owns from its first admission to its end, -1 before.
        prompt: `(prompt,)` int32 token ids.
        generated: `(output,)` int32 token ids behind the prompt that it came with: another engine sampled them.
        params: Its sampling parameters.
        stop_ids: Tokens that end it.
        priority: Smaller runs earlier, under a policy that looks at it.
        arrival: Order of arrival, strictly increasing.
        caller: Who sent it.
        parts: What front halves sent with it, by name.
        first: It has been held back by `admit` longer than any other that waits.
        hash_root: Parent of its first block's hash: what decides its keys and values beside its tokens goes in here.
        extras: Number of a block -> bytes that the hash of that block covers beside its tokens.
    """

    hash_root: bytes
    extras: dict[int, bytes]

    @property
    def handle(self) -> int: ...

    @property
    def row(self) -> int: ...

    @property
    def prompt(self) -> np.ndarray: ...

    @property
    def generated(self) -> np.ndarray: ...

    @property
    def params(self) -> SamplingParams: ...

    @property
    def stop_ids(self) -> tuple[int, ...]: ...

    @property
    def priority(self) -> int: ...

    @property
    def arrival(self) -> int: ...

    @property
    def caller(self) -> Caller: ...

    @property
    def parts(self) -> Mapping[str, Any]: ...

    @property
    def first(self) -> bool: ...


@dataclass(frozen=True)
class EngineSetup:
    """Context that the engine half of a participant is constructed with.

    Attributes:
        name: The participant's name, under which its parts travel.
        options: The plugin's own options.
        block_size: Tokens of a KV block.
        bytes_per_block: Of the keys and values of `block_size` tokens, over all layers: one block of each cache group.
        max_rows: Rows are numbered `0 .. max_rows - 1`.
        max_model_len: Longest request, in tokens.
        vocab_size: Token ids are below this.
        overlap_depth: Steps that may be in flight when one is settled.
        tokenizer: Returns the model's tokenizer.
        cached_tokens: Returns how many leading tokens of a waiting request the prefix cache holds now.
        chosen: Returns the chosen plugins of a kind that a plugin defines, or that the descriptor says it `drives`,
            each as an object made in this process.
        settings: Values of the engine's options that the descriptor names.
        dumps: Returns one of the chosen plugins as one line of text, for `load_chosen` in a process of the
            participant's own. It holds the configuration of the engine, secrets included: it is for a pipe, and for
            nothing that others read.
    """

    name: str
    options: Mapping[str, Any]
    block_size: int
    bytes_per_block: int
    max_rows: int
    max_model_len: int
    vocab_size: int
    overlap_depth: int
    tokenizer: Callable[[], Tokenizer]
    cached_tokens: Callable[[StagedRequest], int]
    chosen: AskChosen = nobody
    settings: Mapping[str, Any] = field(default_factory=dict)
    dumps: Callable[[Chosen], str] = unwritten


class Participant:
    """Base of engine halves: does nothing at every moment. Torch-free; called by one thread.

    Attributes:
        name: Under which its parts travel.
        parts: Their types, as the descriptor declares them.
        proposes: Its worker half proposes drafts. Where no participant does, `drafts` is never asked.
    """

    name: str = ""
    parts: Parts = Parts()
    proposes: bool = False

    def __init__(self, setup: EngineSetup) -> None:
        self.name = setup.name

    def arrive(self, request: StagedRequest) -> None:
        """`request` joins the line, and is hashed behind this. Raises `ValueError` to refuse it."""

    def admit(self, request: StagedRequest) -> bool:
        """Return whether `request`, next in line, may run; on False it is held back and those behind it pass.

        Every participant is asked in every pass until all agree, so waits run side by side. Takes nothing (rule 1).

        Raises:
            ValueError: It can never be admitted; it ends with this error.
        """
        return True

    def supply(self, request: StagedRequest, hashes: Sequence[bytes], local_blocks: int) -> int:
        """Return how many blocks right behind the first `local_blocks` this participant can fill."""
        return 0

    def place(self, request: StagedRequest, supplied: Sequence[BlockRef]) -> bool:
        """Order `supplied`, blocks that `supply` promised; on False they are computed.

        They stand in `loads` of the plan that follows, under the participant's name. What the worker half does not
        fill is computed.
        """
        return False

    def publish(self, blocks: Sequence[BlockRef]) -> None:
        """These blocks hold complete, verified content once the step being planned has run.

        Content that rests on promised blocks is published when these have come.
        """

    def run(self, request: StagedRequest) -> None:
        """`request` runs from this step on, for the first time or again; it has its row."""

    def leave(self, request: StagedRequest) -> None:
        """`request` gave way: it waits to run again, and keeps its row and tokens."""

    def pending(self) -> bool:
        """Return whether a step is due although no row runs, to carry a part to the worker half or a result back."""
        return False

    def drafts(self, rows: np.ndarray, room: np.ndarray) -> np.ndarray | None:
        """Return how many drafts each of these decoding rows may run in the next step; the least of all answers counts.

        A draft is a token that is proposed in place of the next one, run together with the last one, and kept while it
        equals what is sampled there. What is not proposed by then is not run: an answer is an upper bound.

        Args:
            rows: `(n,)` rows whose last token is next.
            room: `(n,)` most drafts that each can run.

        Returns:
            `(n,)` integers; None: as many as there is room for, or others say.
        """
        return None

    def plan(self, plan: StepPlan) -> None:
        """Add this step's part and orders to a plan that is complete otherwise: `plan.parts[self.name] = ...`.

        One that appends its name to `plan.late` is asked for its late part afterwards.
        """

    def late(self, plan: StepPlan, alive: np.ndarray) -> Any:
        """Return the late part of a launched step; asked once all steps before it have settled.

        Args:
            alive: `(rows,)` bool, whether each of the plan's rows still belongs to the request it was planned for.
        """
        return None

    def collect(self, plan: StepPlan, result: StepResult) -> None:
        """Read a step's result before it is settled."""

    def settle(self, requests: Sequence[StagedRequest | None], tokens: np.ndarray) -> Mapping[int, str]:
        """These `requests` got these `tokens (n,)` int32; return index -> error for those that must end.

        A request comes once for each of its tokens, in order. None stands for one that has just ended.
        """
        return {}

    def finished(self, request: StagedRequest) -> Any:
        """Return the part that goes to the front half with the end of `request`, None if there is none."""
        return None

    def finish(self, request: StagedRequest) -> None:
        """`request` ended, for whatever reason; it may never have run."""

    def reset(self) -> None:
        """Forget everything that was derived from the model's weights."""

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Return methods that clients may call by name between steps (`LLM.call`), with plain data."""
        return {}

    def stats(self) -> Mapping[str, Stat]:
        """Return figures by name, for `GET /metrics` (`core_participant_stat`). Called when they are asked for."""
        return {}

    def close(self) -> None:
        """The engine stops; nothing is called afterwards."""


@dataclass(slots=True)
class AllowedTokens:
    """Which tokens may be sampled, for rows that are constrained in a step.

    Attributes:
        rows: `(m,)` int32, rows.
        bits: `(m, ceil(vocab / 32))` int32; bit `t % 32` of `bits[i, t // 32]` allows token t for row `rows[i]`.
    """

    rows: np.ndarray
    bits: np.ndarray


@dataclass(frozen=True, slots=True)
class SampledStep:
    """The tokens that were sampled in a step. A row comes once for each of its tokens, in order.

    Attributes:
        rows: `(n,)` int64.
        known: `(n,)` int64, tokens of each before the sampled one.
        tokens: `(n,)` int32, the sampled ones; -1 where a row failed.
        pool: `(max_rows, tokens)` int32 on the device: the tokens of every row.
    """

    rows: np.ndarray
    known: np.ndarray
    tokens: np.ndarray
    pool: Tensor


@dataclass(frozen=True, slots=True)
class TapPlace:
    """One layer that a forward pass taps.

    Attributes:
        prefix: The layer's module path in the checkpoint.
        width: Numbers that it leaves for each token.
        size: What they are below, where they are ids; 0 where they are not.
    """

    prefix: str
    width: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Tap:
    """Values that layers record in a forward pass, for worker halves whose descriptor names them among its `taps`.

    `experts`, the one tap that there is: the ids of each token's experts, in every layer that has some.

    Attributes:
        places: The layers, in the order in which they were built.
        values: `(tokens, len(places), widest place)` on the device: a step's tokens first, in its order, from the
            forward pass on until the next one. Beyond a place's width stands -1.
    """

    places: tuple[TapPlace, ...]
    values: Tensor = field(repr=False)


@dataclass(frozen=True)
class WorkerSetup:
    """Context that the worker half of a participant is constructed with.

    Attributes:
        name: The participant's name.
        options: The plugin's own options.
        caches: KV cache of each layer, `(blocks, ...)`: block `b` of a layer is `cache[b]`.
        pool: `(max_rows, tokens)` int32 on the device: the tokens of every row, prompt and output.
        vocab_size: Token ids are below this.
        block_size: Tokens of a KV block.
        taps: By name what it reads of forward passes: all that its descriptor names.
        chosen: Returns the chosen plugins of a kind that a plugin defines, each as an object made in this process.
    """

    name: str
    options: Mapping[str, Any]
    caches: Sequence[Tensor] = field(repr=False)
    pool: Tensor = field(repr=False)
    vocab_size: int
    block_size: int
    taps: Mapping[str, Tap] = field(default_factory=dict)
    chosen: AskChosen = nobody


class BatchInputs(StepInputs, Protocol):
    """The inputs of a step, and its batch.

    Attributes:
        batch: As attention sees it in the first cache group, which keeps all tokens if any group does.
    """

    batch: BatchView


class WorkerParticipant:
    """Base of worker halves: does nothing at every moment. Called by the thread that runs steps.

    Attributes:
        name, parts: As those of the engine half.
    """

    name: str = ""
    parts: Parts = Parts()

    def __init__(self, setup: WorkerSetup) -> None:
        self.name = setup.name

    def begin(self, plan: StepPlan) -> Iterable[int] | None:
        """Act before the forward pass; `plan.parts[self.name]` is this step's part, if it has one.

        Returns:
            Blocks of the plan's `loads` under its name that were not filled; None if there is none.
        """
        return None

    def drafts(self, rows: np.ndarray, known: np.ndarray, most: np.ndarray) -> np.ndarray | None:
        """Write drafts into the pool behind the tokens of these rows, from `pool[row, known]` on.

        Called before a step's inputs are built, for rows that may run drafts, if the engine half says `proposes`. Of
        several participants the first one is asked. Drafts must be token ids; whatever they are, the text stays the
        same: they are kept while they equal what is sampled.

        Args:
            rows: `(n,)` int64.
            known: `(n,)` int64, tokens of each row.
            most: `(n,)` most drafts of each row, 1 or more.

        Returns:
            How many each row has, `(n,)` integers; None: none has any.
        """
        return None

    def inputs(self, plan: StepPlan, step: BatchInputs) -> BatchInputs:
        """Return the inputs of the forward pass: `step`, or a changed copy of it. `plan` counts the drafts that run."""
        return step

    def allow(self, plan: StepPlan, late: Any) -> AllowedTokens | None:
        """Return the tokens that rows of this step may sample, given the late part; called after the forward pass.

        A row that several participants constrain may sample what all of them allow.
        """
        return None

    def sampled(self, step: SampledStep) -> None:
        """Tokens were sampled and stand in the pool. On a device with a queue the host waits for them for this."""

    def end(self, plan: StepPlan, result: StepResult) -> None:
        """Act after the step; `result.parts[self.name] = ...` goes to the engine half.

        On a device with a queue the step is enqueued then, and the rest of `result` may not be there yet.
        """

    def weights_replaced(self) -> None:
        """Drop what was derived from the old weights."""

    def calls(self) -> Mapping[str, Callable[..., Any]]:
        """Return methods that the engine half may call by name between steps, with plain data."""
        return {}

    def close(self) -> None:
        """Release what it holds; nothing is called afterwards."""


@dataclass(frozen=True)
class FrontSetup:
    """Context that the front half of a participant is constructed with.

    Attributes:
        name: The participant's name.
        options: The plugin's own options.
        chosen: Returns the chosen plugins of a kind that a plugin defines, each as an object made in this process.
    """

    name: str
    options: Mapping[str, Any]
    chosen: AskChosen = nobody


class FrontParticipant:
    """Base of front halves: does nothing at every moment. Torch-free; lives where requests arrive.

    Attributes:
        name, parts: As those of the engine half.
    """

    name: str = ""
    parts: Parts = Parts()

    def __init__(self, setup: FrontSetup) -> None:
        self.name = setup.name

    def request(self, params: SamplingParams, prompt: np.ndarray, caller: Caller) -> Any:
        """Return the part that travels with a new request, None if there is none.

        Called once for a request, whatever its `n`, when plugins have changed it as they want.

        Raises:
            ValueError: The request cannot be served; the client is told why.
        """
        return None

    def finished(self, part: Any) -> Any:
        """Return what the client is told of a sequence that ended (`CompletionOutput.parts`), None for nothing.

        Over HTTP it is a member of the choice, by the participant's name: plain data, or the base64 of a `.npy` file
        for a numpy array.

        Args:
            part: What the engine half sent with the end; there is none where the front end ended the sequence itself,
                because of a stop text.
        """
        return part
