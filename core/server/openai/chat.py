"""`POST /v1/chat/completions`."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from core.api.parsers import ParserContext
from core.server.body import ignored_fields, read_model
from core.server.errors import ApiError
from core.server.openai.chat_format import ChatFormat
from core.server.openai.generation import Generation, new_id
from core.server.openai.job import ApiJob
from core.server.openai.messages import chosen_tools, normalise_messages, template_kwargs
from core.server.openai.params import chat_params, check_stream
from core.server.openai.protocol import ChatBody, StreamOptions, TokenizeBody, refuse_unsupported
from core.server.state import ServerState
from core.server.streaming import JobResponse

THINK = "<think>"
_THREAD_CHARS = 50_000
_TAIL_TOKENS = 8


class ChatRoute:
    """Answers chat requests."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, request: Request) -> Response:
        """Validate, render, and hand the generation to a response that runs it."""
        state = self._state
        body, fields = await read_model(request, ChatBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        refuse_unsupported(fields)
        check_stream(body)
        params = chat_params(body, state.defaults, state.llm.max_model_len)
        if state.parser is not None and state.parser.special_tokens:
            params = msgspec.structs.replace(params, skip_special_tokens=False)
        tools = chosen_tools(body)
        messages = normalise_messages(body.messages)
        state.admit(params.n)
        ids = await render(state, body, messages, tools)
        generation = Generation(
            state,
            [{"prompt_token_ids": ids}],
            params,
            new_id("chatcmpl"),
            priority=body.priority or 0,
            cache_salt=body.cache_salt,
        )
        format = ChatFormat(
            state.llm.tokenizer,
            top_logprobs=params.logprobs,
            return_ids=bool(body.return_token_ids),
            parser=state.parser.make if state.parser else None,
            parser_context=self._parser_context(tools, ids),
            echo=_echo(messages) if body.echo else "",
        )
        job = ApiJob(generation, format, body.stream_options or StreamOptions())
        headers = ignored_fields(fields, ChatBody.model_fields)
        return JobResponse(state.lifecycle, job, stream=bool(body.stream), headers=headers)

    def _parser_context(self, tools: list[dict[str, Any]], ids: list[int]) -> ParserContext:
        if self._state.parser is None:
            return ParserContext()
        # Templates of thinking models may open the block themselves; the output then starts inside it.
        tail = self._state.llm.tokenizer.decode(ids[-_TAIL_TOKENS:], skip_special_tokens=False)
        # A call of a tool that nobody offered is text.
        reads = frozenset({"tools", "reasoning"} if tools else {"reasoning"})
        return ParserContext(tools, in_reasoning=tail.rstrip().endswith(THINK), reads=reads)


async def render(
    state: ServerState, body: ChatBody | TokenizeBody, messages: list[dict[str, Any]], tools: list[dict[str, Any]]
) -> list[int]:
    """Return the prompt's token ids; long conversations are rendered beside the event loop."""
    continued = bool(body.continue_final_message)
    if continued and body.add_generation_prompt:
        message = "continue_final_message and add_generation_prompt exclude each other."
        raise ApiError(400, message, param="continue_final_message")
    kwargs = template_kwargs(body.chat_template_kwargs)

    def work() -> list[int]:
        return state.llm.render_chat(
            messages,
            tools=tools or None,
            add_generation_prompt=not continued and body.add_generation_prompt is not False,
            continue_final_message=continued,
            documents=body.documents,
            **kwargs,
        )

    size = sum(len(message["content"] or "") for message in messages)
    return await asyncio.to_thread(work) if size > _THREAD_CHARS else work()


def _echo(messages: list[dict[str, Any]]) -> str:
    """Return the message that the answer continues, if the last one is the assistant's."""
    last = messages[-1]
    return (last["content"] or "") if last["role"] == "assistant" else ""
