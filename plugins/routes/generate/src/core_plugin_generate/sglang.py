"""SGLang's `POST /generate`."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from core.api import RequestError
from core.api.routes import EngineClient, RouteRequest, RouteResponse
from core_plugin_generate.fields import MAX_PROMPTS, Body, read, refuse, token_ids, up_to
from core_plugin_generate.run import Answer, Pair, Prompt, check_length, prompt_of, run

DEFAULT_TOKENS = 128
EACH = up_to(MAX_PROMPTS)
"""Bound of the lists that have one entry for each prompt."""

_TEXT_ONLY = "this server reads text only"
_REFUSED = MappingProxyType(
    {
        "input_embeds": "embeddings as a prompt are not accepted",
        "image_data": _TEXT_ONLY,
        "video_data": _TEXT_ONLY,
        "audio_data": _TEXT_ONLY,
        "lora_path": "LoRA adapters are not available",
        "session_params": "sessions are not available: prefixes are shared without them",
        "custom_logit_processor": "processors of requests are not run here; see plugins of the kind logits",
        "return_hidden_states": "hidden states are not given",
        "token_ids_logprob": "log-probabilities of chosen tokens are not given; use top_logprobs_num",
    }
)
_REFUSED_PARAMS = MappingProxyType(
    {
        "stop_regex": "an answer is ended by texts and tokens only; use stop",
        "custom_params": "they belong to custom logit processors",
    }
)
_NAMES = MappingProxyType(
    {
        "min_new_tokens": "min_tokens",
        "no_stop_trim": "include_stop_str_in_output",
        "sampling_seed": "seed",
    }
)
_SAME_NAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "stop",
    "stop_token_ids",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "ignore_eos",
    "skip_special_tokens",
    "logit_bias",
)
_GRAMMARS = MappingProxyType(
    {"json_schema": "json", "regex": "regex", "ebnf": "grammar", "structural_tag": "structural_tag"}
)


class Params(Body):
    """`sampling_params`, as far as they are not passed on as they are."""

    max_new_tokens: int | None = None
    n: int | None = None


class GenerateBody(Body):
    """The request."""

    text: str | Annotated[list[str], EACH] | None = None
    input_ids: Any = None
    sampling_params: dict[str, Any] | Annotated[list[dict[str, Any]], EACH] | None = None
    rid: str | Annotated[list[str], EACH] | None = None
    return_logprob: bool | Annotated[list[bool], EACH] | None = None
    logprob_start_len: int | Annotated[list[int], EACH] | None = None
    top_logprobs_num: int | Annotated[list[int], EACH] | None = None
    return_text_in_logprobs: bool | None = None
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the answer to one prompt has to tell.

    Attributes:
        prompt_from: From which token of the prompt on log-probabilities are told; -1: of none.
        limit: Most tokens that were asked for.
    """

    id: str
    logprobs: bool
    top: int
    prompt_from: int
    texts: bool
    limit: int


class SGLang:
    """Answers SGLang's requests."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    async def generate(self, request: RouteRequest) -> RouteResponse:
        """`POST /generate`."""
        fields = await request.json()
        refuse(fields, _REFUSED)
        body = read(GenerateBody, fields)
        prompts, wanted = await self._prompts(body)
        records = self._records(prompts, wanted)
        many = isinstance(_given(body), list) and (body.input_ids is None or isinstance(body.input_ids[0], list))
        many = many or _count(prompts[0]) > 1
        if body.stream:
            return RouteResponse(_events(records, many), media_type="text/event-stream", headers=_STREAMED)
        found: dict[int, Any] = {}
        async with aclosing(records):
            async for index, record in records:
                found[index] = record
        answers = [found[index] for index in sorted(found)]
        return RouteResponse(json.dumps(answers if many else answers[0]).encode())

    async def about(self, request: RouteRequest) -> RouteResponse:
        """`GET /get_model_info`."""
        name, generates = self._client.model_name, "complete" in self._client.abilities
        info = {"model_path": name, "tokenizer_path": name, "served_model_name": name, "is_generation": generates}
        return RouteResponse(json.dumps({**info, "max_context_length": self._client.max_model_len}).encode())

    async def _prompts(self, body: GenerateBody) -> tuple[list[Prompt], list[Wanted]]:
        given = _given(body)
        plain = isinstance(given, str) or not given or isinstance(given[0], int)
        inputs: list[Any] = [given] if plain else list(given)
        if len(inputs) > MAX_PROMPTS:
            raise RequestError(f"{len(inputs)} prompts; at most {MAX_PROMPTS}", param="text")
        prompts, wanted = [], []
        for number, one in enumerate(inputs):
            where = "sampling_params" if plain else f"sampling_params.{number}"
            params = _each(body.sampling_params, number, len(inputs), "sampling_params") or {}
            refuse(params, _REFUSED_PARAMS, where)
            checked = read(Params, params, where)
            what = self._wanted(body, number, len(inputs), checked)
            ids = one if body.input_ids is None else self._ids(one)
            prompts.append(await prompt_of(self._client, ids, _fields(params, checked.n, what), what.limit))
            wanted.append(what)
        return prompts, wanted

    def _ids(self, given: Any) -> list[int]:
        """Return the ids of a prompt, if they fit. Raises `RequestError`."""
        check_length(self._client, len(given) if isinstance(given, list) else 0)
        return token_ids(given, self._client.tokenizer.vocab_size, "input_ids")

    def _wanted(self, body: GenerateBody, number: int, count: int, params: Params) -> Wanted:
        start = _each(body.logprob_start_len, number, count, "logprob_start_len")
        return Wanted(
            id=_each(body.rid, number, count, "rid") or uuid.uuid4().hex,
            logprobs=bool(_each(body.return_logprob, number, count, "return_logprob")),
            top=_each(body.top_logprobs_num, number, count, "top_logprobs_num") or 0,
            prompt_from=-1 if start is None else start,
            texts=bool(body.return_text_in_logprobs),
            limit=DEFAULT_TOKENS if params.max_new_tokens is None else max(1, params.max_new_tokens),
        )

    async def _records(
        self, prompts: list[Prompt], wanted: list[Wanted]
    ) -> AsyncGenerator[tuple[int, dict[str, Any]], None]:
        """Yield `(number of the answer, the answer so far)`; one that is complete comes once its figures are known."""
        answers: defaultdict[tuple[int, int], Answer] = defaultdict(Answer)
        counts = [_count(prompt) for prompt in prompts]
        async with aclosing(run(self._client, prompts)) as chunks:
            async for number, chunk in chunks:
                base = sum(counts[:number])
                for piece in chunk["choices"]:
                    answer = answers[number, piece["index"]]
                    answer.take(piece)
                    if answer.reason is None:
                        yield base + piece["index"], self._record(prompts[number], wanted[number], answer, {})
                if "usage" in chunk:
                    for sequence in range(counts[number]):
                        answer = answers[number, sequence]
                        yield base + sequence, self._record(prompts[number], wanted[number], answer, chunk)

    def _record(self, prompt: Prompt, wanted: Wanted, answer: Answer, end: Mapping[str, Any]) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": wanted.id,
            "finish_reason": _reason(answer, prompt.limit),
            "prompt_tokens": len(prompt.ids),
            "completion_tokens": len(answer.ids),
            "cached_tokens": 0,
        }
        if end:
            meta["cached_tokens"] = end["usage"]["prompt_tokens_details"]["cached_tokens"]
            meta["e2e_latency"] = end["timings"]["total_seconds"]
        if wanted.logprobs:
            meta |= self._scores(prompt, wanted, answer)
        return {"text": answer.text, "output_ids": answer.ids, "meta_info": meta}

    def _scores(self, prompt: Prompt, wanted: Wanted, answer: Answer) -> dict[str, Any]:
        def told(pair: Pair) -> list[Any]:
            score, token = pair
            return [score, token, self._client.tokenizer.token(token) if wanted.texts else None]

        found: dict[str, Any] = {"output_token_logprobs": [told(pair) for pair in answer.logprobs]}
        if wanted.top:
            found["output_top_logprobs"] = [[told(pair) for pair in top[: wanted.top]] for top in answer.tops]
        first = wanted.prompt_from
        scores = list(zip(answer.prompt_logprobs, prompt.ids))[first:] if first >= 0 else []
        found["input_token_logprobs"] = [
            told((None if at is None else at[str(token)]["logprob"], token)) for at, token in scores
        ]
        return found


_STREAMED = MappingProxyType({"cache-control": "no-cache"})


async def _events(records: AsyncGenerator[tuple[int, dict[str, Any]], None], many: bool) -> AsyncGenerator[bytes, None]:
    begun = False
    try:
        async with aclosing(records):
            async for index, record in records:
                yield _event({**record, "index": index} if many else record)
                begun = True
    except RequestError as error:
        if not begun:
            raise
        yield _event({"error": {"message": error.message}})
    yield b"data: [DONE]\n\n"


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _given(body: GenerateBody) -> Any:
    """Return text or ids, one of which must be given. Raises `RequestError`."""
    if (body.text is None) == (body.input_ids is None):
        raise RequestError("give either text or input_ids", param="text")
    if not isinstance(body.input_ids, list | None):
        raise RequestError("input_ids must be token ids, or a list of token-id lists", param="input_ids")
    given = body.text if body.input_ids is None else body.input_ids
    if not given:
        raise RequestError("the prompt is empty", param="text" if body.input_ids is None else "input_ids")
    return given


def _each(value: Any, number: int, count: int, name: str) -> Any:
    """Return what a field says of one prompt: it has one value for all, or a list of as many."""
    if not isinstance(value, list):
        return value
    if len(value) != count:
        raise RequestError(f"{name} has {len(value)} entries for {count} prompts", param=name)
    return value[number]


def _fields(params: Mapping[str, Any], count: int | None, wanted: Wanted) -> dict[str, Any]:
    """Return the fields of a completion that has `count` answers. Raises `RequestError`."""
    fields = {"n": count, **{name: params.get(name) for name in _SAME_NAME}}
    fields |= {ours: params.get(name) for name, ours in _NAMES.items()}
    grammars = {ours: params[name] for name, ours in _GRAMMARS.items() if params.get(name) is not None}
    if grammars:
        fields["structured_outputs"] = grammars
    if wanted.logprobs:
        fields["logprobs"] = wanted.top
        fields["prompt_logprobs"] = 0 if wanted.prompt_from >= 0 else None
    return {name: value for name, value in fields.items() if value is not None}


def _count(prompt: Prompt) -> int:
    """Return how many answers a prompt gets."""
    return int(prompt.fields.get("n", 1))


def _reason(answer: Answer, limit: int) -> dict[str, Any] | None:
    if answer.reason is None:
        return None
    if answer.reason == "length":
        return {"type": "length", "length": limit}
    if answer.reason == "abort":
        return {"type": "abort", "message": "The request was ended by the server's operator."}
    last = answer.ids[-1] if answer.ids else None
    return {"type": "stop", "matched": last if answer.stopped_by is None else answer.stopped_by}
