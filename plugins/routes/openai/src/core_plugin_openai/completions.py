"""From a body of `POST /v1/completions` to a `TextRequest`, and to what answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api import EngineClient, RequestError, TextRequest
from core.api.bodies import invalid
from core_plugin_openai.completion_format import CompletionFormat, Wanted
from core_plugin_openai.job import FormattedJob
from core_plugin_openai.params import completion_fields, tokens_as_ids, unknown, unread
from core_plugin_openai.prompts import parse_prompts
from core_plugin_openai.protocol import CompletionBody, StreamOptions


async def completion_job(
    client: EngineClient, body: CompletionBody, fields: Mapping[str, Any]
) -> tuple[FormattedJob, dict[str, str]]:
    """Return what answers a body, and the headers that belong to the answer. Raises `RequestError`."""
    headers = client.unread([*unknown(client, body, fields), *unread(body)])
    answer = await client.open(completion_request(client, body, fields), prefix="cmpl")
    format = CompletionFormat(answer, client.tokenizer, body.n or 1, _wanted(client, body))
    return FormattedJob(answer, format, client.model_name, body.stream_options or StreamOptions()), headers


def completion_request(client: EngineClient, body: CompletionBody, fields: Mapping[str, Any]) -> TextRequest:
    """Return what a completion body asks for. Raises `RequestError`."""
    if body.use_beam_search and body.stream:
        raise RequestError("Completions of a beam search are not streamed.", param="stream")
    if body.use_beam_search and body.echo and body.logprobs is not None:
        raise invalid("echo", "with logprobs cannot be used together with beam search")
    asked = completion_fields(client, body, fields)
    most = client.max_model_len if body.truncate_prompt_tokens is None else None
    return TextRequest(prompts=parse_prompts(body.prompt, most), **asked)


def _wanted(client: EngineClient, body: CompletionBody) -> Wanted:
    return Wanted(
        echo=bool(body.echo),
        logprobs=body.logprobs is not None or bool(body.logprob_token_ids),
        prompt_logprobs=body.prompt_logprobs is not None,
        token_ids=bool(body.return_token_ids),
        tokens_as_ids=tokens_as_ids(body, client.settings["return_tokens_as_token_ids"]),
        prompt_text=bool(body.return_prompt_text),
    )
