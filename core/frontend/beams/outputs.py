"""Between beams and what users ask for and get: parameters, limits, texts, log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.api.sampling_table import fields_of
from core.api.tokenizer import Tokenizer
from core.frontend.beams.search import Beam, BeamSearch, BeamSearchParams, Position
from core.frontend.detokenizer import SequenceText
from core.frontend.results import CompletionOutput, Logprob
from core.frontend.stops import StopScanner, StopTexts

_MISFITS = (
    "grammar",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "min_tokens",
    *(one.name for one in fields_of("penalize")),
    "prompt_logprobs",
    "logprob_token_ids",
    "thinking_token_budget",
    "repetition_detection",
    "extra_args",
)
_UNDECODED = "\ufffd"
_TAIL = 8
_TOKENS_PER_CHAR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamRules:
    """Fields of a beam search beyond `SamplingParams`, whose `n` is the width (see `BeamSearchParams`).

    Raises:
        RequestError: A value is outside its range.
    """

    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        BeamSearchParams(beam_width=1, length_penalty=self.length_penalty, early_stopping=self.early_stopping)

    def params(self, params: SamplingParams) -> BeamSearchParams:
        """Return how to search for what `params` ask for; how they sample does not matter.

        Raises:
            RequestError: They ask for something that beams do not follow.
        """
        neutral = SamplingParams()
        for name in _MISFITS:
            if getattr(params, name) != getattr(neutral, name):
                grammar = params.grammar
                field = grammar.param if name == "grammar" and grammar is not None else name
                said = f"{field} cannot be used together with beam search"
                raise RequestError(said, param=field, code="unsupported_parameter")
        return BeamSearchParams(
            beam_width=params.n,
            max_tokens=params.max_tokens,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            ignore_eos=params.ignore_eos,
            stop=tuple(params.stop),
            stop_token_ids=tuple(params.stop_token_ids),
            include_stop_str_in_output=params.include_stop_str_in_output,
            skip_special_tokens=params.skip_special_tokens,
            logprobs=params.logprobs,
        )


def beam_rules(asked: Mapping[str, Any], params: SamplingParams) -> BeamRules:
    """Return the rules that a request's fields say; None means that the client did not say.

    Raises:
        RequestError: A value is outside its range, or `params` ask for something that beams do not follow.
    """
    rules = BeamRules(**{name: value for name, value in asked.items() if value is not None})
    rules.params(params)
    return rules


def start_search(params: BeamSearchParams, prompt: Sequence[int], tokenizer: Tokenizer, max_len: int) -> BeamSearch:
    """Return the search behind a prompt.

    Args:
        max_len: The model's length.

    Raises:
        RequestError: `max_tokens` or `beam_width` is too large.
    """
    room = max_len - len(prompt)
    if params.max_tokens is not None and params.max_tokens > room:
        said = f"max_tokens ({params.max_tokens}) is greater than the {room} tokens left after the prompt"
        raise RequestError(said, param="max_tokens", code="context_length_exceeded")
    limit = room if params.max_tokens is None else params.max_tokens
    return BeamSearch(params, tokenizer.eos_ids, limit, _stops(params, tokenizer))


def step_params(keep: int) -> SamplingParams:
    """Return the parameters of a request for the `keep` most likely next tokens."""
    return SamplingParams(temperature=0.0, max_tokens=1, logprobs=keep, detokenize=False)


def beam_outputs(
    beams: Sequence[Beam], params: BeamSearchParams, prompt: Sequence[int], tokenizer: Tokenizer, unfinished: str
) -> list[CompletionOutput]:
    """Return sequences as users read them.

    Args:
        unfinished: Why those ended that neither a token nor a text did.
    """
    return [_output(index, beam, params, prompt, tokenizer, unfinished) for index, beam in enumerate(beams)]


def _output(
    index: int, beam: Beam, params: BeamSearchParams, prompt: Sequence[int], tokenizer: Tokenizer, unfinished: str
) -> CompletionOutput:
    scanner = StopScanner(StopTexts(params.stop), include=params.include_stop_str_in_output) if params.stop else None
    stream = tokenizer.stream(prompt, skip_special_tokens=params.skip_special_tokens)
    text = SequenceText(stream, scanner, 0)
    silent = isinstance(beam.stop, int) and not params.include_stop_str_in_output
    for token in beam.tokens[: len(beam.tokens) - silent]:
        text.push(token)
    text.finish()
    told = beam.stop if isinstance(beam.stop, str) or beam.stop in params.stop_token_ids else None
    return CompletionOutput(
        index=index,
        text=text.take(),
        token_ids=list(beam.tokens),
        cumulative_logprob=beam.logprob,
        logprobs=None if params.logprobs is None else _logprobs(beam, params.logprobs),
        finish_reason=unfinished if beam.stop is None else "stop",
        stop_reason=told,
    )


def _logprobs(beam: Beam, best: int) -> list[dict[int, Logprob]]:
    return [_best(token, found, best) for token, found in zip(beam.tokens, beam.positions(), strict=True)]


def _best(token: int, position: Position, best: int) -> dict[int, Logprob]:
    """Return the chosen token first, then the most likely ones."""
    ranked = sorted(position.items(), key=lambda item: -item[1].logprob)
    return {token: position[token], **dict(ranked[:best])}


def _stops(params: BeamSearchParams, tokenizer: Tokenizer) -> Callable[[Sequence[int]], str | None] | None:
    """Return what looks for stop texts at the end of a sequence whose tokens so far hold none."""
    if not params.stop:
        return None
    reach = _TOKENS_PER_CHAR * max(map(len, params.stop)) + _TAIL

    def stopped(tokens: Sequence[int]) -> str | None:
        text = tokenizer.decode(list(tokens[-reach:]), skip_special_tokens=params.skip_special_tokens)
        text = text.rstrip(_UNDECODED)  # may be the first bytes of a character that the next token completes
        return next((stop for stop in params.stop if stop in text), None)

    return stopped
