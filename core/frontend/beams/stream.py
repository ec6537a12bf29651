"""Beam search beside other requests on a running engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, cast

from core.api.requests import Caller
from core.api.tokenizer import Tokenizer
from core.engine.sampling import SamplingParams
from core.frontend.beams.outputs import beam_outputs, start_search, step_params
from core.frontend.beams.search import BeamSearch, BeamSearchParams, Position
from core.frontend.caller import NOBODY
from core.frontend.inputs import Prepared
from core.frontend.results import CompletionOutput, RequestOutput

_Ask = Callable[[str, list[int], int], Coroutine[Any, Any, RequestOutput]]


class Generates(Protocol):
    """What is needed of `AsyncLLM`."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def max_model_len(self) -> int: ...

    async def prepare(self, prompt: Any, params: SamplingParams) -> Prepared: ...

    def generate(
        self,
        prompt: Any,
        params: SamplingParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        caller: Caller = NOBODY,
        delta: bool = False,
    ) -> AsyncIterator[RequestOutput]: ...


async def beam_stream(
    llm: Generates,
    prompt: Any,
    params: BeamSearchParams,
    *,
    request_id: str,
    priority: int = 0,
    cache_salt: str | None = None,
    caller: Caller = NOBODY,
) -> AsyncGenerator[RequestOutput, None]:
    """Yield one output, the sequences best first; closing the iterator, or cancelling it, aborts what runs.

    Each step is a request for one token of each sequence that goes on; what they share comes from the prefix cache.
    One that the server's operator ends ends them all (finish reason `abort`).

    Args:
        request_id: What the ids of those requests begin with.

    Raises:
        RequestError: The prompt or a parameter cannot be served.
        EngineError: The engine is gone.
    """
    ready = (await llm.prepare(prompt, SamplingParams(max_tokens=1))).prompt
    search = start_search(params, ready.ids, llm.tokenizer, llm.max_model_len)
    ask = partial(_ask, llm, priority=priority, cache_salt=cache_salt, caller=caller)
    output = RequestOutput(request_id, ready.text, ready.ids, [], finished=True)
    reason, steps = "length", 0
    while search.running and reason == "length":
        sequences = {f"{request_id}-{steps}-{i}": [*ready.ids, *one.tokens] for i, one in enumerate(search.running)}
        found = await _together(ask, sequences, search.ask)
        if not steps:
            output.num_cached_tokens = found[0].num_cached_tokens
        steps += 1
        failed = [one.outputs[0] for one in found if one.outputs[0].finish_reason == "error"]
        if failed:
            output.outputs = [CompletionOutput(0, finish_reason="error", error=failed[0].error)]
            yield output
            return
        reason = _advance(search, [one.outputs[0] for one in found])
    beams = search.results() if reason == "length" else search.so_far()
    output.outputs = beam_outputs(beams, params, ready.ids, llm.tokenizer, reason)
    yield output


def _advance(search: BeamSearch, found: Sequence[CompletionOutput]) -> str:
    """Go a step on; return why the search ends early, or `length`."""
    if any(one.finish_reason == "abort" or not one.logprobs for one in found):
        return "abort"
    search.step([cast(Position, (one.logprobs or [{}])[0]) for one in found])
    return "length"


async def _together(ask: _Ask, sequences: dict[str, list[int]], keep: int) -> list[RequestOutput]:
    tasks = [asyncio.ensure_future(ask(name, ids, keep)) for name, ids in sequences.items()]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:  # when one fails, or nobody waits any more, the engine forgets the others
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(
    llm: Generates, name: str, ids: list[int], keep: int, *, priority: int, cache_salt: str | None, caller: Caller
) -> RequestOutput:
    outputs = llm.generate(
        {"prompt_token_ids": ids},
        step_params(keep),
        request_id=name,
        priority=priority,
        cache_salt=cache_salt,
        caller=caller,
        delta=True,
    )
    whole: RequestOutput | None = None
    async with aclosing(cast("AsyncGenerator[RequestOutput, None]", outputs)) as items:
        async for output in items:
            if output.outputs and (whole is None or output.outputs[0].logprobs or whole.outputs[0].logprobs is None):
                whole = output
    if whole is None:
        return RequestOutput(name, None, ids, [CompletionOutput(0, finish_reason="abort")])
    return whole
