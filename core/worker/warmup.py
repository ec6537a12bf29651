"""A short run through the ordinary step path, so that the first request does not pay for first-time work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from core.api.sampling_params import SamplingParams
from core.api.steps import BlockUpdate, NewRow, StepPlan, StepResult

PROMPT_TOKENS = 16
DECODE_STEPS = 2


def warm_up(
    execute: Callable[[StepPlan], StepResult],
    *,
    block_size: int,
    num_blocks: int,
    max_model_len: int,
    groups: int = 1,
    decodes: int = DECODE_STEPS,
) -> None:
    """Run one small prompt and a few decode steps in row 0, and leave nothing behind that a request could see.

    Rows are reset when a request takes them, and a request's blocks are written before they are read. All cache groups
    use the same blocks here: what they compute does not matter.
    """
    room = min(max_model_len, (num_blocks - 1) * block_size)
    for plan in _plans(max(1, min(PROMPT_TOKENS, room - decodes)), room, block_size, decodes):
        plan.blocks *= groups
        execute(plan)


def widest_step(tokens: int, max_rows: int, max_model_len: int, block_size: int, blocks: int) -> StepPlan:
    """Return a step of as many rows and as many tokens as one may have: it takes the memory of the largest.

    One row after the other is as long as it can be while the rest has a token each. They write to each other's blocks,
    so what is computed means nothing.

    Args:
        blocks: How many blocks there are, from 1 on.
    """
    count = min(max_rows, tokens)
    more = np.clip(tokens - count - np.arange(count) * (max_model_len - 1), 0, max_model_len - 1)
    counts = (1 + more).tolist()
    columns = [-(-count // block_size) for count in counts]
    params, rows = SamplingParams(temperature=1.0, seed=0, top_p=0.9), np.arange(len(counts), dtype=np.int32)
    given = 1 + np.arange(sum(columns), dtype=np.int32) % blocks
    offsets = np.concatenate([[0], np.cumsum(columns)]).astype(np.int32)
    return StepPlan(
        number=0,
        new_rows=[NewRow(row, np.zeros(count, np.int32), params, ()) for row, count in enumerate(counts)],
        blocks=(BlockUpdate(rows, np.zeros_like(rows), offsets, given),),
        rows=rows,
        starts=np.zeros_like(rows),
        counts=np.array(counts, dtype=np.int32),
        samples=np.ones(len(rows), dtype=bool),
        output_counts=np.zeros_like(rows),
    )


def _plans(prompt: int, room: int, block_size: int, decodes: int) -> Iterator[StepPlan]:
    new = NewRow(0, np.zeros(prompt, dtype=np.int32), SamplingParams(temperature=0.0), ())
    columns = -(-min(prompt + decodes, room) // block_size)
    blocks = _update(np.arange(1, columns + 1, dtype=np.int32))
    yield _plan(0, [new], blocks, start=0, count=prompt, outputs=0)
    for step in range(1, min(decodes, room - prompt) + 1):
        yield _plan(step, [], _update(np.zeros(0, dtype=np.int32)), start=prompt + step - 1, count=1, outputs=step)


def _plan(number: int, new: list[NewRow], blocks: BlockUpdate, *, start: int, count: int, outputs: int) -> StepPlan:
    return StepPlan(
        number=number,
        new_rows=new,
        blocks=(blocks,),
        rows=np.zeros(1, dtype=np.int32),
        starts=np.array([start], dtype=np.int32),
        counts=np.array([count], dtype=np.int32),
        samples=np.ones(1, dtype=bool),
        output_counts=np.array([outputs], dtype=np.int32),
    )


def _update(blocks: np.ndarray) -> BlockUpdate:
    one = np.zeros(1 if len(blocks) else 0, dtype=np.int32)
    return BlockUpdate(one, one, np.array([0, len(blocks)] if len(blocks) else [0], dtype=np.int32), blocks)
