"""From a prepared request to the messages that start its sequences."""

from __future__ import annotations

from collections.abc import Iterator

from core.api.sampling_params import SamplingParams
from core.engine.messages import Add
from core.frontend.inputs import Prepared

_SEED_LIMIT = 2**63


def add_message(prepared: Prepared, handle: int, params: SamplingParams, prompt: bytes) -> Add:
    """Return the message that starts one sequence of a request.

    Args:
        params: The sequence's own (`sequence_params`).
        prompt: The request's token ids, encoded once for all of its sequences.
    """
    request = prepared.request
    return Add(
        handle=handle,
        prompt=prompt,
        params=params,
        stop_ids=prepared.stop_ids,
        held_ids=prepared.held_ids,
        priority=prepared.priority,
        cache_salt=request.cache_salt,
        caller=request.caller,
        parts=dict(prepared.parts),
    )


def sequence_params(params: SamplingParams) -> Iterator[SamplingParams]:
    """Yield each sequence's parameters, without what only the front end reads.

    Seeds are consecutive, so that the sequences differ; the prompt is scored once.
    """
    if params.n == 1 and not (params.stop or params.bad_words or params.repetition_detection):
        yield params
        return
    common = params.replace(n=1, stop=[], bad_words=[], repetition_detection=None)
    for index in range(params.n):
        if index == 0 or (params.seed is None and params.prompt_logprobs is None):
            yield common
            continue
        seed = None if params.seed is None else (params.seed + index + _SEED_LIMIT) % (2 * _SEED_LIMIT) - _SEED_LIMIT
        yield common.replace(seed=seed, prompt_logprobs=None)
