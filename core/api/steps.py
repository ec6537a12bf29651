"""Messages between engine and worker: one plan and one result per step.

A plan is a *diff*: prompts travel once, block tables grow by what is new, and nothing is proportional to the tokens
already computed. All arrays are numpy, so a plan is encoded without a copy when a worker lives elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.api.kvspecs import KVSpec
from core.api.sampling_params import SamplingParams


@dataclass(slots=True)
class NewRow:
    """A request that gets its row in this step.

    Attributes:
        row: The row it owns for life.
        prompt: `(prompt,)` int32 token ids.
        params: Its sampling parameters.
        stop_ids: End-of-sequence and stop ids, which `min_tokens` holds back, whether or not they end it.
        parts: What the task's engine half sends its worker half with this request, by its name.
        generated: `(output,)` int32 token ids behind the prompt that were sampled before, in another engine; mostly
            none.
    """

    row: int
    prompt: np.ndarray
    params: SamplingParams
    stop_ids: tuple[int, ...]
    parts: dict[str, Any] = field(default_factory=dict)
    generated: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int32))


@dataclass(slots=True)
class BlockUpdate:
    """Ragged change of the block tables of one cache group.

    Row `rows[i]` gets `blocks[offsets[i]:offsets[i + 1]]` from column `starts[i]` on.

    Attributes:
        rows: `(n,)` int32.
        starts: `(n,)` int32, columns.
        offsets: `(n + 1,)` int32, from 0 to the number of blocks.
        blocks: int32, those of all rows behind each other.
    """

    rows: np.ndarray
    starts: np.ndarray
    offsets: np.ndarray
    blocks: np.ndarray


@dataclass(slots=True)
class StateCopies:
    """Copies of recurrent states, each `(n, 2)` int32: the slot that is read, and the one that is written.

    The slots of rows have the rows' numbers; those behind them hold snapshots.

    Attributes:
        loads: Snapshots that rows begin with; before the forward pass.
        keeps: States of rows that become snapshots; behind it.
    """

    loads: np.ndarray
    keeps: np.ndarray


@dataclass(slots=True)
class StepPlan:
    """One step's work. Entry `i` of every array is the i-th scheduled request.

    Attributes:
        number: Step number, from 0.
        new_rows: Requests seen by the worker for the first time; applied before anything else.
        blocks: Block-table diff of each cache group; applied before the forward pass.
        rows: `(n,)` int32, the row of each scheduled request.
        starts: `(n,)` int32, position of its first token in this step.
        counts: `(n,)` int32, how many tokens it runs.
        samples: `(n,)` bool, whether its last token is the last known one or a draft, so that tokens are sampled.
        output_counts: `(n,)` int32, output tokens it has before this step, placeholders included.
        parts: What participants' engine halves send their worker halves, by name.
        loads: KV blocks that each participant's worker half fills before the forward pass, by its name.
        leaving: Names of participants whose worker half is closed before this step: they take part no more.
        late: Names of participants whose late parts follow while the forward pass runs (`Executor.late`).
        drafts: `(n,)` int32, how many drafts each row may run behind its last token, which are in its count. Such a row
            is bound late: `starts`, `output_counts` are upper bounds, it runs from its last token, wherever that is,
            and has as many tokens more as drafts are there. -1: the row runs exactly what is said. None: all rows do.
        states: Recurrent states that are copied around the forward pass; None for none.
    """

    number: int
    new_rows: list[NewRow]
    blocks: tuple[BlockUpdate, ...]
    rows: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    samples: np.ndarray
    output_counts: np.ndarray
    parts: dict[str, Any] = field(default_factory=dict)
    loads: dict[str, list[int]] = field(default_factory=dict)
    leaving: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    drafts: np.ndarray | None = None
    states: StateCopies | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that the forward pass runs over, if every row has as many drafts as it may run."""
        return int(self.counts.sum())


@dataclass(slots=True)
class TopLogprobs:
    """Log-probabilities of `m` positions.

    Attributes:
        ids: `(m, k)` int32; column 0 is the chosen token, then the k - 1 best, best first.
        values: `(m, k)` float32.
        ranks: `(m,)` int32, rank of the chosen token, 1 for the most likely.
    """

    ids: np.ndarray
    values: np.ndarray
    ranks: np.ndarray


@dataclass(slots=True)
class StepResult:
    """Result of a step.

    Attributes:
        number: The plan's number.
        tokens: `(counts.sum(),)` int32, in the plan's order: those of a row follow each other. None where the task is
            not to sample.
        counts: `(samples.sum(),)` int32, tokens that each sampling row gained; None: one each.
        logprobs: Index into `tokens` -> its log-probabilities, for the rows that asked.
        prompt_logprobs: Index into the plan's rows -> log-probabilities of the prompt positions this step scored
            (position p's entry scores token p + 1), for the rows that asked.
        errors: Index into the plan's rows -> what went wrong with this row alone; its token is -1.
        parts: What worker halves of participants and the task send their engine halves, by name.
        lost: Blocks of the plan's `loads` that were not filled. What was computed on them means nothing.
        faults: What went wrong in the worker half of participants, by name.
    """

    number: int
    tokens: np.ndarray
    logprobs: dict[int, TopLogprobs] = field(default_factory=dict)
    prompt_logprobs: dict[int, TopLogprobs] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    faults: dict[str, list[str]] = field(default_factory=dict)
    counts: np.ndarray | None = None


@dataclass(slots=True)
class WorkerInfo:
    """Report of a worker that is ready.

    Attributes:
        num_blocks: KV blocks it allocated, which all cache groups share.
        bytes_per_block: Bytes of one block over the layers of a cache group.
        facts: Rows of the start-up table (device, memory budget, ...).
        timeline: `(phase, seconds)` of its start.
        groups: What the layers of each cache group keep of the past.
        max_model_len: Longest request, in tokens, lowered to what the cache holds where the configuration allows it;
            None: the configuration's.
        max_num_seqs: Rows, lowered to those whose recurrent states fit; None: the configuration's.
        snapshots: Slots for snapshots of recurrent states, behind those of the rows.
    """

    num_blocks: int
    bytes_per_block: int
    facts: dict[str, str]
    timeline: list[tuple[str, float]]
    groups: tuple[KVSpec, ...] = (KVSpec(),)
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    snapshots: int = 0

    @property
    def column_bytes(self) -> int:
        """Bytes of one block of every cache group: the keys and values of a block's tokens in all layers."""
        return self.bytes_per_block * len(self.groups)


@dataclass(frozen=True, slots=True)
class StepShape:
    """Size of a step: what decides which graph can run it.

    Attributes:
        num_tokens: Tokens of all rows.
        num_rows: Requests in the step.
        max_query_len: Most tokens of one row.
        max_seq_len: Most tokens in the cache of one row, after this step's writes.
    """

    num_tokens: int
    num_rows: int
    max_query_len: int
    max_seq_len: int
