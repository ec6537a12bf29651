"""Models that give vectors: transformers' hidden states and class numbers, prompt by prompt, from the right tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from core.api.descriptors import ModelSpec
from core.api.errors import CheckpointError
from core.api.ranks import Ranks
from core_testing.conformance.outcome import Failed, NotApplicable, Unavailable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.encoder import Encoder, encoder_cases
from core_testing.conformance.tools.tiny_cases import (
    INDIVISIBLE,
    TinyCase,
    for_each,
    require_close,
    require_damage_refused,
    require_divided,
    require_every_architecture,
    require_shape,
    shape_of,
)
from core_testing.ranks import run_ranks
from core_testing.tinyencoders import VOCAB_SIZE

PROMPT = [2, *((7 * index * index + 3 * index + 11) % (VOCAB_SIZE - 5) + 5 for index in range(40)), 3]
_OTHERS = ([2, 9, 3], [2, *range(20, 37), 3], [2, 3])
_TOLERANCE = 1e-3
"""Of the greatest number."""

_EXTRA = "encoder.layer.0.attention.self.no_such_projection.weight"


def _cases(subject: Subject) -> list[TinyCase]:
    if not subject.spec(ModelSpec).tasks & {"embed", "classify"}:
        raise NotApplicable("it gives no vectors")
    cases = subject.once("tiny encoders", lambda: encoder_cases(subject))
    if not cases:
        raise Unavailable("there is no tiny configuration for any of its architectures")
    return cases


_each = for_each(_cases)


def every_encoder_can_be_checked(subject: Subject) -> None:
    """There is a tiny configuration for each architecture of the descriptor, the kit's or the plugin's."""
    require_every_architecture(subject, _cases(subject))


@_each
def hidden_states_equal_transformers(subject: Subject, case: TinyCase) -> None:
    """A prompt's hidden states are those of transformers' model with the same random weights."""
    expected = _reference(case, PROMPT)
    require(float(expected.std()) > 0.05, "the reference's hidden states are all alike, so that they prove nothing")
    require_close(_encoder(subject, case).run([PROMPT])[0], expected, _TOLERANCE, "a prompt")


@_each
def prompts_are_independent(subject: Subject, case: TinyCase) -> None:
    """Prompts of any lengths in one step have the hidden states that they have alone."""
    encoder = _encoder(subject, case)
    prompts = [_OTHERS[0], PROMPT, *_OTHERS[1:]]
    for prompt, found in zip(prompts, encoder.run(prompts), strict=True):
        where = f"a prompt of {len(prompt)} tokens beside others"
        require_close(found, encoder.run([prompt])[0], _TOLERANCE, where)


@_each
def ranks_share_the_encoder(subject: Subject, case: TinyCase) -> None:
    """Two ranks, each with half of the heads, have the hidden states of one; or their number is refused by name."""

    def rank(ranks: Ranks, all_reduce: Callable[[Tensor], Tensor]) -> tuple[Encoder, Tensor]:
        encoder = Encoder(subject, case, ranks=ranks, all_reduce=all_reduce)
        return encoder, encoder.run([PROMPT])[0]

    try:
        found = run_ranks(2, rank)
    except CheckpointError as error:
        require(error.code in INDIVISIBLE, f"two ranks are refused otherwise than by their number: {error}")
        return
    whole = _encoder(subject, case)
    require_divided(2, [encoder.sites for encoder, _ in found], whole.sites)
    for _rank, states in found:
        require_close(states, whole.run([PROMPT])[0], _TOLERANCE, "two ranks: a prompt")


@_each
def types_of_tokens_are_seen(subject: Subject, case: TinyCase) -> None:
    """The second text of a pair is told from the first where the architecture has types of tokens."""
    if getattr(case.reference.config, "type_vocab_size", 0) != 2:
        return
    types = [int(place >= 17) for place in range(len(PROMPT))]
    expected = _reference(case, PROMPT, token_type_ids=torch.tensor([types]))
    found = _encoder(subject, case).run([_OTHERS[0], PROMPT], [[0] * len(_OTHERS[0]), types])[1]
    require_close(found, expected, _TOLERANCE, "a pair of texts")


@_each
def heads_equal_transformers(subject: Subject, case: TinyCase) -> None:
    """A head's output for pooled hidden states is that of transformers' model."""
    encoder, pooling = _encoder(subject, case), shape_of(subject, case).pooling
    if pooling is None or pooling.task != "classify":
        return
    with torch.no_grad():
        expected = case.reference(torch.tensor([PROMPT])).logits[0]
    states = encoder.run([PROMPT])[0]
    pooled = {"cls": states[:1], "mean": states.mean(0, keepdim=True), "last": states[-1:], "all": states}
    found = encoder.classify(pooled[pooling.method])
    require(found.shape[-1] == len(pooling.labels), f"{found.shape[-1]} numbers for {len(pooling.labels)} labels")
    require_close(found, expected.reshape(found.shape), _TOLERANCE, "a head's number")


@_each
def encoder_shape_agrees_with_the_config(subject: Subject, case: TinyCase) -> None:
    """`shape` gives the configuration's sizes, attention and rotary embeddings, and what the model gives."""
    encoder = _encoder(subject, case)
    shape, config, sites = shape_of(subject, case), case.reference.config, encoder.backend.encoders
    if shape.pooling is None:
        raise Failed("its shape does not say what it gives instead of tokens (pooling)")
    require(shape.pooling.bidirectional or not sites, "pooling.bidirectional is false, but the model sees ahead")
    due = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
    }
    used = {"bidirectional"} if sites else set()
    used |= {"sliding_window" for site in sites if site.window is not None}
    used |= {"position_bias" for site in sites if site.bias is not None}
    require_shape(shape, due, used, encoder.ropes)


@_each
def damaged_encoders_are_refused(subject: Subject, case: TinyCase) -> None:
    """A checkpoint that lacks a tensor the model reads, or has one too many, is refused."""
    tensors, names = case.tensors(), _encoder(subject, case).names
    read = [place for place, tensor in enumerate(tensors) if names(tensor.name) is not None]
    places = (read[0], read[len(read) // 2], read[-1])
    require_damage_refused(lambda left: Encoder(subject, case, left), tensors, places, _EXTRA)


def _encoder(subject: Subject, case: TinyCase) -> Encoder:
    return subject.once(f"encoder {case.name} {subject.device}", lambda: Encoder(subject, case))


def _reference(case: TinyCase, prompt: list[int], **inputs: Tensor) -> Tensor:
    base = getattr(case.reference, case.reference.base_model_prefix, case.reference)
    with torch.no_grad():
        states: Tensor = base(torch.tensor([prompt]), **inputs).last_hidden_state[0]
    return states


CHECKS = (
    *checks(every_encoder_can_be_checked),
    *checks(
        hidden_states_equal_transformers,
        prompts_are_independent,
        ranks_share_the_encoder,
        types_of_tokens_are_seen,
        heads_equal_transformers,
        encoder_shape_agrees_with_the_config,
        damaged_encoders_are_refused,
        on_device=True,
    ),
)
