"""SGLang's `POST /generate`."""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any

from core.api import Answer, Delta, EngineClient, Outlet, Reply, RequestError, RouteRequest, RouteResponse, TokenScore
from core.api.bodies import SamplingBody, few
from core_plugin_generate.events import event
from core_plugin_generate.fields import MAX_PROMPTS, Body, read, refuse, token_ids, up_to
from core_plugin_generate.run import Growing, Prompt, check_length, opened, prompt_of, run

DEFAULT_TOKENS = 128
_MAX_BIASES = 4096
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
_GRAMMARS = MappingProxyType(
    {"json_schema": "json", "regex": "regex", "ebnf": "grammar", "structural_tag": "structural_tag"}
)


_RENAMED = MappingProxyType({**{ours: theirs for theirs, ours in _NAMES.items()}, "max_tokens": "max_new_tokens"})
"""Sampling parameter -> SGLang's field, for errors."""


_SAME_NAME = (
    *("n", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"),
    *("ignore_eos", "skip_special_tokens"),
)
"""SGLang's parameters that core has under the same name, and whose bounds are not its own."""


class Params(Body, SamplingBody, fields=_SAME_NAME):
    """`sampling_params`, but for grammars."""

    max_new_tokens: int | None = None
    stop: str | Annotated[list[str], EACH] | None = None
    stop_token_ids: Annotated[list[int], EACH] | None = None
    logit_bias: Annotated[dict[int, float], few(_MAX_BIASES)] | None = None
    min_new_tokens: int | None = None
    no_stop_trim: bool | None = None
    sampling_seed: int | None = None


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
    """Contents that are wanted of the answer to one prompt.

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

    async def generate(self, request: RouteRequest) -> Reply:
        """`POST /generate`."""
        fields = await request.json()
        refuse(fields, _REFUSED)
        body = read(GenerateBody, fields)
        prompts, wanted = await self._prompts(body)
        many = isinstance(_given(body), list) and (body.input_ids is None or isinstance(body.input_ids[0], list))
        answers = await opened(self._client, prompts, "generate")
        records = Records(self._client, prompts, wanted, answers)
        return Reply(GenerateJob(records, many=many or prompts[0].count > 1), bool(body.stream))

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
            asked = {"structured": _grammars(params), "names": _RENAMED}
            sampling = _sampling(checked, params, self._client.plugin_fields, what)
            prompts.append(await prompt_of(self._client, ids, sampling, what.limit, **asked))
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


class Records:
    """The records of a request's answers, which tell everything so far.

    Args:
        prompts, wanted, answers: By the number of the prompt.
    """

    def __init__(
        self, client: EngineClient, prompts: list[Prompt], wanted: list[Wanted], answers: list[Answer]
    ) -> None:
        self.answers = answers
        self._client, self._prompts, self._wanted = client, prompts, wanted
        self._grown: defaultdict[tuple[int, int], Growing] = defaultdict(Growing)
        counts = [prompt.count for prompt in prompts]
        self._firsts = [sum(counts[:number]) for number in range(len(counts))]

    def grown(self, number: int, delta: Delta) -> tuple[int, dict[str, Any]] | None:
        """Take in what is new of a prompt's answer; return its number and record, unless it has ended."""
        one = self._grown[number, delta.index]
        one.take(delta)
        if one.reason is not None:
            return None  # told once all of the prompt's figures are known
        return self._firsts[number] + delta.index, self._record(number, one, {})

    def ended(self, number: int) -> list[tuple[int, dict[str, Any]]]:
        """Return numbers and records of a prompt's answers, all of which have ended."""
        answer = self.answers[number]
        end = {"cached_tokens": answer.usage.cached, "e2e_latency": answer.timings.total}
        places = range(self._prompts[number].count)
        return [(self._firsts[number] + i, self._record(number, self._grown[number, i], end)) for i in places]

    def _record(self, number: int, one: Growing, end: Mapping[str, Any]) -> dict[str, Any]:
        prompt, wanted = self._prompts[number], self._wanted[number]
        meta: dict[str, Any] = {
            "id": wanted.id,
            "finish_reason": _reason(one, prompt.limit),
            "prompt_tokens": len(prompt.ids),
            "completion_tokens": len(one.ids),
            "cached_tokens": 0,
            **end,
        }
        if wanted.logprobs:
            meta |= self._scores(wanted, one, self.answers[number].prompts[0].scores, prompt.ids)
        return {"text": one.text, "output_ids": one.ids, "meta_info": meta}

    def _scores(
        self, wanted: Wanted, one: Growing, prompt: Sequence[TokenScore | None], ids: list[int]
    ) -> dict[str, Any]:
        def told(token: int, score: float | None) -> list[Any]:
            return [score, token, self._client.tokenizer.token(token) if wanted.texts else None]

        found: dict[str, Any] = {"output_token_logprobs": [told(score.id, score.logprob) for score in one.scores]}
        if wanted.top:
            tops = [score.top[: wanted.top] for score in one.scores]
            found["output_top_logprobs"] = [[told(best.id, best.logprob) for best in top] for top in tops]
        first = wanted.prompt_from
        scores = list(zip(ids, prompt))[first:] if first >= 0 else []
        found["input_token_logprobs"] = [told(token, None if at is None else at.logprob) for token, at in scores]
        return found


class GenerateJob:
    """Answers a request: with all of its records, or with events of what there is so far.

    Args:
        many: There are several answers, which say their number.
    """

    def __init__(self, records: Records, *, many: bool) -> None:
        self._records, self._many = records, many

    async def collect(self) -> bytes:
        """Return the records as JSON."""
        found: dict[int, Any] = {}

        def ended(number: int) -> bool:
            found.update(self._records.ended(number))
            return True

        def take(number: int, delta: Delta) -> bool:
            self._records.grown(number, delta)
            return True

        await run(self._records.answers, take, ended)
        answers = [found[index] for index in sorted(found)]
        return json.dumps(answers if self._many else answers[0]).encode()

    async def stream(self, outlet: Outlet) -> None:
        """Put the records into an outlet as they grow."""

        def take(number: int, delta: Delta) -> bool:
            told = self._records.grown(number, delta)
            return told is None or outlet.put(self._event(*told))

        def ended(number: int) -> bool:
            return outlet.put(b"".join([self._event(*told) for told in self._records.ended(number)]))

        await run(self._records.answers, take, ended, outlet.room)

    def _event(self, index: int, record: dict[str, Any]) -> bytes:
        return event({**record, "index": index} if self._many else record)


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


def _sampling(params: Params, sent: Mapping[str, Any], further: Collection[str], wanted: Wanted) -> dict[str, Any]:
    """Return sampling parameters by core's names.

    Args:
        sent: The parameters as they were sent, of which `further` are those of plugins.
    """
    fields = params.sampling(sent, further)
    fields |= {name: getattr(params, name) for name in ("stop", "stop_token_ids", "logit_bias")}
    fields |= {ours: getattr(params, theirs) for theirs, ours in _NAMES.items()}
    if wanted.logprobs:
        fields["logprobs"] = wanted.top
        fields["prompt_logprobs"] = 0 if wanted.prompt_from >= 0 else None
    return fields


def _grammars(params: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the text must be."""
    return {ours: params[name] for name, ours in _GRAMMARS.items() if params.get(name) is not None} or None


def _reason(answer: Growing, limit: int) -> dict[str, Any] | None:
    if answer.reason is None:
        return None
    if answer.reason == "length":
        return {"type": "length", "length": limit}
    if answer.reason == "abort":
        return {"type": "abort", "message": "The request was ended by the server's operator."}
    last = answer.ids[-1] if answer.ids else None
    return {"type": "stop", "matched": last if answer.stopped_by is None else answer.stopped_by}
