"""Beam search beside other requests on a running engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, cast

from core.api.tokenizer import Tokenizer
from core.frontend.beams.outputs import beam_outputs, start_search, step_params
from core.frontend.beams.search import BeamSearch, BeamSearchParams, Position
from core.frontend.output_stream import OutputFeed
from core.frontend.prompts import TokenizedPrompt, prompt_ids
from core.frontend.request import GenerationRequest
from core.frontend.results import CompletionOutput, RequestOutput
from core.frontend.spelling import spelling


class Generates(Protocol):
    """The part of `AsyncLLM` that is used here."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def max_model_len(self) -> int: ...

    async def tokenized(self, request: GenerationRequest) -> TokenizedPrompt: ...

    async def submit(self, request: GenerationRequest, *, delta: bool = False) -> OutputFeed: ...


async def beam_stream(
    llm: Generates, request: GenerationRequest, params: BeamSearchParams, name: str
) -> AsyncGenerator[RequestOutput, None]:
    """Yield one output, the sequences best first; closing the iterator, or cancelling it, aborts what runs.

    Each step is a request for one token of each sequence that goes on; what they share comes from the prefix cache.
    One that the server's operator ends ends them all (finish reason `abort`).

    Args:
        request: Whose prompt is continued, and which says how those requests are treated.
        name: What the names of those requests begin with.

    Raises:
        RequestError: The prompt or a parameter cannot be served.
        EngineError: The engine is gone.
    """
    ready = await llm.tokenized(request)
    with spelling(request.names):
        search = start_search(params, ready.ids, llm.tokenizer, llm.max_model_len)
    output = RequestOutput(name, ready.text, ready.ids, [], finished=True)
    step = _step_of(request, search.ask)
    reason, steps = "length", 0
    while search.running and reason == "length":
        asked = [
            replace(step, prompt=ready.ids + prompt_ids(one.tokens), engine_id=f"{name}-{steps}-{number}")
            for number, one in enumerate(search.running)
        ]
        found = await _together(llm, asked)
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


def _step_of(request: GenerationRequest, keep: int) -> GenerationRequest:
    """Return what is asked for one sequence in one step: its `keep` most likely next tokens."""
    return replace(request, params=step_params(keep), rendered_ids=None, beams=None, truncation=None, names={})


async def _together(llm: Generates, asked: Sequence[GenerationRequest]) -> list[RequestOutput]:
    tasks = [asyncio.ensure_future(_ask(llm, one)) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:  # when one fails, or nobody waits any more, the engine forgets the others
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(llm: Generates, request: GenerationRequest) -> RequestOutput:
    whole: RequestOutput | None = None
    stream = await llm.submit(request, delta=True)
    async with aclosing(stream):
        async for output in stream:
            if output.outputs and (whole is None or output.outputs[0].logprobs or whole.outputs[0].logprobs is None):
                whole = output
    if whole is None:
        return RequestOutput("", None, prompt_ids(()), [CompletionOutput(0, finish_reason="abort")])
    return whole
