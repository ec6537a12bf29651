"""Models that give vectors: transformers' hidden states and class numbers, prompt by prompt, from the right tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from core.api.descriptors import ModelSpec
from core.api.errors import CheckpointError
from core.api.models import ModelShape
from core.testing.conformance.outcome import Check, Failed, Level, NotApplicable, Unavailable, require
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.decoder import TinyCase, settings
from core.testing.conformance.tools.devices import device_of, largest_difference
from core.testing.conformance.tools.encoder import Encoder, encoder_cases
from core.testing.conformance.tools.tensors import PlainTensor
from core.testing.tinyencoders import VOCAB_SIZE

PROMPT = [2, *((7 * index * index + 3 * index + 11) % (VOCAB_SIZE - 5) + 5 for index in range(40)), 3]
_OTHERS = ([2, 9, 3], [2, *range(20, 37), 3], [2, 3])
_TOLERANCE = 1e-3
"""Of the greatest number."""

_EXTRA = "encoder.layer.0.attention.self.no_such_projection.weight"


def every_encoder_can_be_checked(subject: Subject) -> None:
    """There is a tiny configuration for each architecture of the descriptor, the kit's or the plugin's."""
    known = {case.architecture for case in _cases(subject)}
    missing = [name for name in subject.spec(ModelSpec).architectures if name not in known]
    if missing:
        where = f"{subject.package}.conformance"
        raise Unavailable(f"no tiny configuration for {', '.join(missing)}: add a ModelSample to samples() in {where}")


def hidden_states_equal_transformers(subject: Subject) -> None:
    """A prompt's hidden states are those of transformers' model with the same random weights."""
    _each(subject, _states)


def prompts_are_independent(subject: Subject) -> None:
    """Prompts of any lengths in one step have the hidden states that they have alone."""
    _each(subject, _independent)


def types_of_tokens_are_seen(subject: Subject) -> None:
    """The second text of a pair is told from the first where the architecture has types of tokens."""
    _each(subject, _types)


def heads_equal_transformers(subject: Subject) -> None:
    """What a head makes of pooled hidden states is what transformers' model gives."""
    _each(subject, _heads)


def encoder_shape_agrees_with_the_config(subject: Subject) -> None:
    """`shape` gives the configuration's sizes, and says that attention is bidirectional and what the model gives."""
    _each(subject, _shape)


def damaged_encoders_are_refused(subject: Subject) -> None:
    """A checkpoint that lacks a tensor the model reads, or has one too many, is refused."""
    _each(subject, _damaged)


def _states(subject: Subject, case: TinyCase) -> None:
    expected = _reference(case, PROMPT)
    require(float(expected.std()) > 0.05, "the reference's hidden states are all alike, so that they prove nothing")
    _require_close(_encoder(subject, case).run([PROMPT])[0], expected, "a prompt")


def _independent(subject: Subject, case: TinyCase) -> None:
    encoder = _encoder(subject, case)
    prompts = [_OTHERS[0], PROMPT, *_OTHERS[1:]]
    for prompt, found in zip(prompts, encoder.run(prompts), strict=True):
        _require_close(found, encoder.run([prompt])[0], f"a prompt of {len(prompt)} tokens beside others")


def _types(subject: Subject, case: TinyCase) -> None:
    if getattr(case.reference.config, "type_vocab_size", 0) != 2:
        return
    types = [int(place >= 17) for place in range(len(PROMPT))]
    expected = _reference(case, PROMPT, token_type_ids=torch.tensor([types]))
    found = _encoder(subject, case).run([_OTHERS[0], PROMPT], [[0] * len(_OTHERS[0]), types])[1]
    _require_close(found, expected, "a pair of texts")


def _heads(subject: Subject, case: TinyCase) -> None:
    encoder, pooling = _encoder(subject, case), _shape_of(subject, case).pooling
    if pooling is None or pooling.task != "classify":
        return
    with torch.no_grad():
        expected = case.reference(torch.tensor([PROMPT])).logits[0]
    states = encoder.run([PROMPT])[0]
    pooled = {"cls": states[:1], "mean": states.mean(0, keepdim=True), "last": states[-1:], "all": states}
    found = encoder.classify(pooled[pooling.method])
    require(found.shape[-1] == len(pooling.labels), f"{found.shape[-1]} numbers for {len(pooling.labels)} labels")
    _require_close(found, expected.reshape(found.shape), "a head's number")


def _shape(subject: Subject, case: TinyCase) -> None:
    shape, config = _shape_of(subject, case), case.reference.config
    sites, pooling = _encoder(subject, case).sites, shape.pooling
    if pooling is None:
        raise Failed("its shape does not say what it gives instead of tokens (pooling)")
    require(pooling.bidirectional or not sites, "pooling.bidirectional is false, but the model sees ahead")
    used = {"bidirectional"} if sites else set()
    used |= {"sliding_window" for site in sites if site.window is not None}
    used |= {"position_bias" for site in sites if site.bias is not None}
    lacks = sorted(used - shape.features)
    require(not lacks, f"the model uses {', '.join(lacks)}, but its shape's features do not say so")
    due = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size}
    due |= {"num_layers": config.num_hidden_layers, "num_heads": config.num_attention_heads}
    found = {name: getattr(shape, name) for name in due}
    wrong = [f"{name} is {found[name]}, not {value}" for name, value in due.items() if found[name] != value]
    require(not wrong, "; ".join(wrong))


def _damaged(subject: Subject, case: TinyCase) -> None:
    tensors = case.tensors()
    names = _encoder(subject, case).names
    read = [index for index, tensor in enumerate(tensors) if names(tensor.name) is not None]
    for index in (read[0], read[len(read) // 2], read[-1]):
        _require_refused(subject, case, tensors[:index] + tensors[index + 1 :], f"without {tensors[index].name}")
    _require_refused(subject, case, [*tensors, PlainTensor(_EXTRA, torch.zeros(4, 4))], f"with a tensor {_EXTRA}")


def _each(subject: Subject, check: Callable[[Subject, TinyCase], None]) -> None:
    """Run a check for every tiny model; the failure names all models that fail."""
    cases = _cases(subject)
    device_of(subject)
    faults = []
    for case in cases:
        try:
            check(subject, case)
        except (Failed, CheckpointError) as fault:
            faults.append(f"{case.name}: {fault}")
    require(not faults, "; ".join(faults))


def _cases(subject: Subject) -> list[TinyCase]:
    if not subject.spec(ModelSpec).tasks & {"embed", "classify"}:
        raise NotApplicable("it gives no vectors")
    cases = subject.once("tiny encoders", lambda: encoder_cases(subject))
    if not cases:
        raise Unavailable("there is no tiny configuration for any of its architectures")
    return cases


def _encoder(subject: Subject, case: TinyCase) -> Encoder:
    return subject.once(f"encoder {case.name} {subject.device}", lambda: Encoder(subject, case))


def _shape_of(subject: Subject, case: TinyCase) -> ModelShape:
    shape = subject.load(subject.spec(ModelSpec).shape)(settings(case))
    require(isinstance(shape, ModelShape), f"shape gives a {type(shape).__name__}")
    found: ModelShape = shape
    return found


def _reference(case: TinyCase, prompt: list[int], **inputs: Tensor) -> Tensor:
    base = getattr(case.reference, case.reference.base_model_prefix, case.reference)
    with torch.no_grad():
        states: Tensor = base(torch.tensor([prompt]), **inputs).last_hidden_state[0]
    return states


def _require_close(found: Tensor, expected: Tensor, what: str) -> None:
    error, allowed = largest_difference(found, expected), _TOLERANCE * float(expected.abs().max())
    require(error <= allowed, f"{what} is off by {error:.2g}, allowed {allowed:.2g}")


def _require_refused(subject: Subject, case: TinyCase, tensors: list[PlainTensor], where: str) -> None:
    try:
        Encoder(subject, case, tensors)
    except CheckpointError:
        return
    raise Failed(f"a checkpoint {where} is loaded as if nothing were wrong")


CHECKS = (
    Check(every_encoder_can_be_checked),
    *(
        Check(function, Level.L1, on_device=True)
        for function in (
            hidden_states_equal_transformers,
            prompts_are_independent,
            types_of_tokens_are_seen,
            heads_equal_transformers,
            encoder_shape_agrees_with_the_config,
            damaged_encoders_are_refused,
        )
    ),
)
