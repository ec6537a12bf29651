"""llama.cpp's `POST /completion`."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Annotated, Any

from core.api import RequestError, token_bytes
from core.api.routes import EngineClient, RouteRequest, RouteResponse
from core_plugin_generate.fields import MAX_PROMPTS, Body, read, refuse, token_ids, up_to
from core_plugin_generate.run import Answer, Pair, Prompt, check_length, prompt_of, run

_SAMPLERS = "this sampler is not available; use temperature, top_k, top_p and min_p"
_REFUSED = MappingProxyType(
    {
        "mirostat": _SAMPLERS,
        "dry_multiplier": _SAMPLERS,
        "xtc_probability": _SAMPLERS,
        "dynatemp_range": _SAMPLERS,
        "grammar_lazy": "a grammar holds from the answer's beginning on",
        "n_indent": "the indentation of an answer cannot be held",
        "t_max_predict_ms": "an answer is not limited by time; use n_predict",
        "post_sampling_probs": "probabilities are those before sampling",
        "lora": "LoRA adapters are not available",
        "image_data": "this server reads text only",
    }
)
_SAME_NAME = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "ignore_eos",
    "grammar",
    "json_schema",
)
_BIAS = 100.0
_MAX_BIASES = 4096
_LONGEST_BIASED = 256
_NUMBER = re.compile(r"[0-9]{1,18}")


class CompletionBody(Body):
    """The request, as far as its fields have a meaning here."""

    prompt: Any = None
    n_predict: int | None = None
    max_tokens: int | None = None
    n_cmpl: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], up_to(MAX_PROMPTS)] | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    ignore_eos: bool | None = None
    logit_bias: Any = None
    n_probs: int | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    stream: bool | None = None
    return_tokens: bool | None = None

    @property
    def limit(self) -> int:
        """Most tokens; -1: as many as fit."""
        given = self.n_predict if self.n_predict is not None else self.max_tokens
        return -1 if given is None or given < 0 else given


class LlamaCpp:
    """Answers llama.cpp's requests."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    async def completion(self, request: RouteRequest) -> RouteResponse:
        """`POST /completion`."""
        fields = await request.json()
        refuse(fields, _REFUSED)
        body = read(CompletionBody, fields)
        asked, many = _prompts(body.prompt)
        wanted = await asyncio.to_thread(self._fields, body)  # texts among the biases are encoded
        prompts = [await prompt_of(self._client, await self._tokens(one), wanted, body.limit) for one in asked]
        if body.stream:
            events = self._events(body, prompts)
            return RouteResponse(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
        answers = await self._whole(body, prompts)
        one = not many and (body.n_cmpl or 1) == 1
        return RouteResponse(json.dumps(answers[0] if one else answers).encode())

    async def props(self, request: RouteRequest) -> RouteResponse:
        """`GET /props`."""
        client = self._client
        template = getattr(client.tokenizer, "chat_template", None)
        about = {
            "default_generation_settings": {"n_ctx": client.max_model_len},
            "model_alias": client.model_name,
            "model_path": client.model_name,
            "chat_template": template if isinstance(template, str) else "",
            "modalities": {"vision": False, "audio": False},
            "build_info": "core",
        }
        return RouteResponse(json.dumps(about).encode())

    # -- the request -----------------------------------------------------------------------------------------------

    def _fields(self, body: CompletionBody) -> dict[str, Any]:
        """Return the fields of a completion. Raises `RequestError`."""
        if body.typical_p not in (None, 1.0):
            raise RequestError(f"typical_p: {_SAMPLERS}", param="typical_p")
        fields: dict[str, Any] = {name: getattr(body, name) for name in _SAME_NAME}
        fields["n"] = body.n_cmpl
        fields["repetition_penalty"] = None if body.repeat_last_n == 0 else body.repeat_penalty
        fields["seed"] = body.seed if body.seed is not None and body.seed >= 0 else None
        fields["logprobs"] = body.n_probs or None
        fields["logit_bias"] = dict(self._biases(body.logit_bias)) or None
        if body.limit == 0:  # the prompt goes into the cache; of a completion without tokens only the echo is left
            fields["echo"] = True
        return {name: value for name, value in fields.items() if value is not None}

    def _biases(self, given: Any) -> Iterator[tuple[str, float]]:
        """Yield tokens and what is added to their scores; a text stands for all of its tokens."""
        if not given:
            return
        pairs = list(given.items()) if isinstance(given, dict) else given
        if isinstance(pairs, list) and len(pairs) > _MAX_BIASES:
            raise RequestError(f"logit_bias has {len(pairs)} entries; at most {_MAX_BIASES}", param="logit_bias")
        for pair in pairs if isinstance(pairs, list) else [None]:
            if not isinstance(pair, list | tuple) or len(pair) != 2 or type(pair[1]) not in (int, float, bool):
                raise RequestError("logit_bias has pairs of a token, or a text, and a number", param="logit_bias")
            token, bias = pair
            never = bias is False
            amount = -_BIAS if never else max(-_BIAS, min(_BIAS, float(bias)))
            if isinstance(token, str) and len(token) > _LONGEST_BIASED:
                said = f"a text of logit_bias has {len(token)} characters; at most {_LONGEST_BIASED}"
                raise RequestError(said, param="logit_bias")
            if isinstance(token, str) and not _NUMBER.fullmatch(token):
                tokens = self._client.tokenizer.encode(token, add_special_tokens=False)
            else:
                tokens = token_ids([int(token) if isinstance(token, str) else token], self._size, "logit_bias")
            for one in tokens:
                yield str(one), amount

    @property
    def _size(self) -> int:
        return self._client.tokenizer.vocab_size

    async def _tokens(self, prompt: Any) -> str | list[int]:
        """Return one prompt: a text, token ids, or both in turns, of which only a text at the beginning gets a BOS.

        Raises:
            RequestError: It is none, or more than fits.
        """
        if isinstance(prompt, str):
            return prompt
        if isinstance(prompt, dict):
            refuse(prompt, {"multimodal_data": "this server reads text only"}, "prompt")
            text = prompt.get("prompt_string")
            if not isinstance(text, str):
                raise RequestError("prompt.prompt_string must be a text", param="prompt")
            return text
        texts = [place for place, part in enumerate(prompt) if isinstance(part, str)]
        check_length(self._client, len(prompt))
        ids: list[int] = []
        last = 0
        for place in texts:
            ids += token_ids(prompt[last:place], self._size, "prompt")
            ids += await self._client.tokenize(prompt[place], add_special_tokens=place == 0)
            check_length(self._client, len(ids))
            last = place + 1
        return ids + token_ids(prompt[last:], self._size, "prompt")

    # -- the answer ------------------------------------------------------------------------------------------------

    async def _whole(self, body: CompletionBody, prompts: list[Prompt]) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        async with aclosing(self._results(body, prompts)) as results:
            async for index, prompt, answer, chunk in results:
                if chunk:
                    found[index] = {**self._last(body, prompt, answer, chunk, index)}
        return [found[index] for index in sorted(found)]

    async def _events(self, body: CompletionBody, prompts: list[Prompt]) -> AsyncGenerator[bytes, None]:
        sent: defaultdict[int, tuple[int, int]] = defaultdict(lambda: (0, 0))
        begun = False
        try:
            async with aclosing(self._results(body, prompts)) as results:
                async for index, prompt, answer, chunk in results:
                    text, tokens = sent[index]
                    sent[index] = (len(answer.text), len(answer.ids))
                    new = {
                        "index": index,
                        "content": answer.text[text:] if body.limit else "",
                        "tokens": answer.ids[tokens:],
                        "stop": False,
                        "id_slot": -1,
                        "tokens_predicted": len(answer.ids),
                        "tokens_evaluated": len(prompt.ids),
                    }
                    if body.n_probs and answer.logprobs[tokens:]:
                        new["completion_probabilities"] = self._probabilities(body.n_probs, answer, tokens)
                    if chunk:
                        new |= {**self._last(body, prompt, answer, chunk, index), "content": "", "tokens": []}
                        new.pop("completion_probabilities", None)
                    yield _event(new)
                    begun = True
        except RequestError as error:
            if not begun:
                raise
            yield _event({"error": said(error)})

    async def _results(
        self, body: CompletionBody, prompts: list[Prompt]
    ) -> AsyncGenerator[tuple[int, Prompt, Answer, Mapping[str, Any]], None]:
        """Yield number, prompt and answer so far; at an answer's end once more, with the chunk of the figures."""
        answers: defaultdict[tuple[int, int], Answer] = defaultdict(Answer)
        count = body.n_cmpl or 1
        async with aclosing(run(self._client, prompts)) as chunks:
            async for number, chunk in chunks:
                for piece in chunk["choices"]:
                    answer = answers[number, piece["index"]]
                    answer.take(piece)
                    yield number * count + piece["index"], prompts[number], answer, {}
                if "usage" in chunk:
                    for place in range(count):
                        yield number * count + place, prompts[number], answers[number, place], chunk

    def _last(
        self, body: CompletionBody, prompt: Prompt, answer: Answer, chunk: Mapping[str, Any], index: int
    ) -> dict[str, Any]:
        word = answer.stopped_by if isinstance(answer.stopped_by, str) else ""
        cached = chunk["usage"]["prompt_tokens_details"]["cached_tokens"]
        given = body.model_dump(exclude={"prompt", "stream"}, exclude_none=True)
        content = answer.text if body.limit else ""
        probabilities = {}
        if body.n_probs:
            probabilities["completion_probabilities"] = self._probabilities(body.n_probs, answer, 0)
        return {
            "index": index,
            "content": content,
            "tokens": answer.ids if body.return_tokens else [],
            "id_slot": -1,
            "stop": True,
            "model": self._client.model_name,
            "tokens_predicted": len(answer.ids),
            "tokens_evaluated": len(prompt.ids),
            "generation_settings": {**given, "n_ctx": self._client.max_model_len, "n_predict": prompt.limit},
            "prompt": self._client.tokenizer.decode(prompt.ids, skip_special_tokens=False),
            "has_new_line": "\n" in content,
            "truncated": False,
            "stop_type": "limit" if answer.reason == "length" else "word" if word else "eos",
            "stopping_word": word,
            "tokens_cached": cached,
            "timings": _timings(len(prompt.ids) - cached, cached, len(answer.ids), chunk["timings"]),
            **probabilities,
        }

    def _probabilities(self, top: int, answer: Answer, start: int) -> list[dict[str, Any]]:
        return [
            {**self._token(pair), "top_logprobs": [self._token(one) for one in likely[:top]]}
            for pair, likely in zip(answer.logprobs[start:], answer.tops[start:], strict=True)
        ]

    def _token(self, pair: Pair) -> dict[str, Any]:
        score, token = pair
        tokenizer = self._client.tokenizer
        own = b"" if token in tokenizer.special_ids else token_bytes(tokenizer, token)
        return {"id": token, "token": tokenizer.token(token), "bytes": list(own or b""), "logprob": score}


def said(error: RequestError) -> dict[str, Any]:
    """Return an error as llama.cpp says it, which has what SGLang's clients look for too."""
    kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 503: "unavailable_error"}
    default = "server_error" if error.status >= 500 else "invalid_request_error"
    return {"code": error.status, "message": error.message, "type": kinds.get(error.status, default)}


def _prompts(given: Any) -> tuple[list[Any], bool]:
    """Return the prompts, and whether there are several. Raises `RequestError`."""
    if isinstance(given, str | dict) and given:
        return [given], False
    if not isinstance(given, list) or not given:
        raise RequestError("prompt must be a text, token ids, or a list of them; not empty", param="prompt")
    if any(type(one) is int for one in given):
        return [given], False
    if len(given) > MAX_PROMPTS:
        raise RequestError(f"prompt has {len(given)} entries; at most {MAX_PROMPTS}", param="prompt")
    if not all(isinstance(one, str | dict | list) and one for one in given):
        raise RequestError("the entries of prompt must be texts or token ids; not empty", param="prompt")
    return given, True


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _timings(prompt: int, cached: int, predicted: int, seconds: Mapping[str, float]) -> dict[str, Any]:
    first = seconds["first_token_seconds"]
    rest = seconds["total_seconds"] - first
    return {
        "cache_n": cached,
        "prompt_n": prompt,
        "prompt_ms": first * 1000,
        "prompt_per_token_ms": first * 1000 / max(prompt, 1),
        "prompt_per_second": prompt / first if first > 0 else 0.0,
        "predicted_n": predicted,
        "predicted_ms": rest * 1000,
        "predicted_per_token_ms": rest * 1000 / max(predicted, 1),
        "predicted_per_second": predicted / rest if rest > 0 else 0.0,
    }
