"""llama.cpp's `POST /completion`."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from core.api import Answer, Delta, EngineClient, Outlet, Reply, RequestError, RouteRequest, RouteResponse, Timings
from core.api import TokenScore as Score
from core.api.bodies import SamplingBody
from core_plugin_generate.events import event
from core_plugin_generate.fields import MAX_PROMPTS, Body, read, refuse, token_ids, up_to
from core_plugin_generate.run import Growing, Prompt, check_length, opened, prompt_of, run

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
_SAME_NAME = ("temperature", "top_k", "top_p", "min_p", "seed", "presence_penalty", "frequency_penalty", "ignore_eos")
"""llama.cpp's fields that core has under the same name; the others it has not, or calls otherwise."""

_RENAMED = MappingProxyType(
    {
        "n": "n_cmpl",
        "max_tokens": "n_predict",
        "repetition_penalty": "repeat_penalty",
        "logprobs": "n_probs",
        "structured": "grammar",
        "structured.json": "json_schema",
    }
)
"""Field of a rule -> llama.cpp's, for errors."""

_BIAS = 100.0
_MAX_BIASES = 4096
_LONGEST_BIASED = 256
_NUMBER = re.compile(r"[0-9]{1,18}")


class CompletionBody(Body, SamplingBody, fields=_SAME_NAME):
    """The request, as far as its fields have a meaning here."""

    prompt: Any = None
    n_predict: int | None = None
    max_tokens: int | None = None
    n_cmpl: int | None = None
    typical_p: float | None = None
    stop: str | Annotated[list[str], up_to(MAX_PROMPTS)] | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
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

    async def completion(self, request: RouteRequest) -> Reply:
        """`POST /completion`."""
        fields = await request.json()
        refuse(fields, _REFUSED)
        body = read(CompletionBody, fields)
        given, many = _prompts(body.prompt)
        sampling = await asyncio.to_thread(self._sampling, body, fields)  # texts among the biases are encoded
        asked = {"structured": _structured(body), "names": _RENAMED}
        prompts = [
            await prompt_of(self._client, await self._tokens(one), sampling, body.limit, **asked) for one in given
        ]
        answers = await opened(self._client, prompts, "completion")
        records = Records(self._client, body, prompts, answers)
        return Reply(CompletionJob(records, many=many or (body.n_cmpl or 1) > 1), bool(body.stream))

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

    def _sampling(self, body: CompletionBody, sent: Mapping[str, Any]) -> dict[str, Any]:
        """Return sampling parameters by core's names. Raises `RequestError`."""
        if body.typical_p not in (None, 1.0):
            raise RequestError(f"typical_p: {_SAMPLERS}", param="typical_p")
        fields = {**body.sampling(sent, self._client.plugin_fields), "stop": body.stop}
        fields["n"] = body.n_cmpl
        fields["repetition_penalty"] = None if body.repeat_last_n == 0 else body.repeat_penalty
        fields["seed"] = body.seed if body.seed is not None and body.seed >= 0 else None
        fields["logprobs"] = body.n_probs or None
        fields["logit_bias"] = dict(self._biases(body.logit_bias)) or None
        return fields

    def _biases(self, given: Any) -> Iterator[tuple[int, float]]:
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
                yield one, amount

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


class Records:
    """Records of a request's answers.

    Args:
        prompts, answers: By the number of the prompt.
    """

    def __init__(
        self, client: EngineClient, body: CompletionBody, prompts: list[Prompt], answers: list[Answer]
    ) -> None:
        self.answers = answers
        self._client, self._body, self._prompts = client, body, prompts
        self._grown: defaultdict[tuple[int, int], Growing] = defaultdict(Growing)

    def grown(self, number: int, delta: Delta) -> dict[str, Any]:
        """Take in what is new of a prompt's answer, and return the record of it."""
        one = self._grown[number, delta.index]
        text, tokens = len(one.text), len(one.ids)
        one.take(delta)
        new = {
            "index": self._index(number, delta.index),
            "content": one.text[text:],
            "tokens": one.ids[tokens:],
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": len(one.ids),
            "tokens_evaluated": len(self._prompts[number].ids),
        }
        if self._body.n_probs and delta.scores:
            new["completion_probabilities"] = self._probabilities(delta.scores)
        return new

    def ended(self, number: int) -> list[dict[str, Any]]:
        """Return the records of a prompt's answers, all of which have ended."""
        return [self._last(number, index) for index in range(self._body.n_cmpl or 1)]

    def _index(self, number: int, index: int) -> int:
        return number * (self._body.n_cmpl or 1) + index

    def _last(self, number: int, index: int) -> dict[str, Any]:
        body, prompt, answer = self._body, self._prompts[number], self.answers[number]
        one, cached = self._grown[number, index], answer.usage.cached
        word = one.stopped_by if isinstance(one.stopped_by, str) else ""
        given = body.model_dump(exclude={"prompt", "stream"}, exclude_none=True)
        probabilities = {"completion_probabilities": self._probabilities(one.scores)} if body.n_probs else {}
        return {
            "index": self._index(number, index),
            "content": one.text,
            "tokens": one.ids if body.return_tokens else [],
            "id_slot": -1,
            "stop": True,
            "model": self._client.model_name,
            "tokens_predicted": len(one.ids),
            "tokens_evaluated": len(prompt.ids),
            "generation_settings": {**given, "n_ctx": self._client.max_model_len, "n_predict": prompt.limit},
            "prompt": self._client.tokenizer.decode(prompt.ids, skip_special_tokens=False),
            "has_new_line": "\n" in one.text,
            "truncated": False,
            "stop_type": "limit" if one.reason == "length" else "word" if word else "eos",
            "stopping_word": word,
            "tokens_cached": cached,
            "timings": _timings(len(prompt.ids) - cached, cached, len(one.ids), answer.timings),
            **probabilities,
        }

    def _probabilities(self, scores: Sequence[Score]) -> list[dict[str, Any]]:
        top = self._body.n_probs or 0
        return [{**_token(score), "top_logprobs": [_token(best) for best in score.top[:top]]} for score in scores]


class CompletionJob:
    """Answers a request: with its records, or with events of what is new.

    Args:
        many: There are several answers.
    """

    def __init__(self, records: Records, *, many: bool) -> None:
        self._records, self._many = records, many

    async def collect(self) -> bytes:
        """Return the records as JSON."""
        found: list[dict[str, Any]] = []

        def ended(number: int) -> bool:
            found.extend(self._records.ended(number))
            return True

        def take(number: int, delta: Delta) -> bool:
            self._records.grown(number, delta)
            return True

        await run(self._records.answers, take, ended)
        found.sort(key=lambda record: record["index"])
        return json.dumps(found if self._many else found[0]).encode()

    async def stream(self, outlet: Outlet) -> None:
        """Put what is new into an outlet as it comes."""

        def take(number: int, delta: Delta) -> bool:
            return outlet.put(event(self._records.grown(number, delta)))

        def ended(number: int) -> bool:
            return outlet.put(b"".join([event(_without_text(record)) for record in self._records.ended(number)]))

        await run(self._records.answers, take, ended, outlet.room)


def _without_text(record: dict[str, Any]) -> dict[str, Any]:
    """Return an answer's last record as a stream has it, whose parts have told the text."""
    told = {**record, "content": "", "tokens": []}
    told.pop("completion_probabilities", None)
    return told


def _token(score: Score) -> dict[str, Any]:
    return {"id": score.id, "token": score.token, "bytes": list(score.bytes), "logprob": score.logprob}


def _structured(body: CompletionBody) -> dict[str, Any] | None:
    """Return what the text must be. Raises `RequestError`."""
    if body.json_schema is not None and body.grammar:
        raise RequestError("json_schema cannot be used together with grammar", param="json_schema")
    if body.json_schema is not None:
        return {"json": body.json_schema}
    return {"grammar": body.grammar} if body.grammar else None  # its default in llama.cpp is an empty text


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


def _timings(prompt: int, cached: int, predicted: int, seconds: Timings) -> dict[str, Any]:
    first = seconds.first_token
    rest = seconds.total - first
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
