"""Models: transformers' logits for every architecture, in any order of steps, from exactly the tensors that exist."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from core.api.descriptors import ModelSpec
from core.api.errors import CheckpointError
from core.api.models import ModelShape
from core.testing.conformance.outcome import Check, Failed, Level, NotApplicable, Unavailable, require
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.decoder import BLOCK_SIZE, Decoder, TinyCase, Track, settings, tiny_cases
from core.testing.conformance.tools.devices import device_of, largest_difference
from core.testing.conformance.tools.tensors import PlainTensor
from core.testing.tinymodels import VOCAB_SIZE

TOKENS = [(7 * index * index + 3 * index + 11) % VOCAB_SIZE for index in range(24)]
_OTHER = [(5 * index * index + index + 3) % VOCAB_SIZE for index in range(13)]
_TOLERANCE = 2e-3
"""Of the greatest logit."""

_EXTRA = "model.layers.0.self_attn.no_such_projection.weight"


def every_architecture_can_be_checked(subject: Subject) -> None:
    """There is a tiny configuration for each architecture of the descriptor, the kit's or the plugin's."""
    known = {case.architecture for case in _cases(subject)}
    missing = [name for name in subject.spec(ModelSpec).architectures if name not in known]
    if missing:
        where = f"{subject.package}.conformance"
        raise Unavailable(f"no tiny configuration for {', '.join(missing)}: add a ModelSample to samples() in {where}")


def logits_equal_transformers(subject: Subject) -> None:
    """A prompt's logits are those of transformers' model with the same random weights."""
    _each(subject, _prompt)


def chunked_prefill_equals_whole(subject: Subject) -> None:
    """A prompt in pieces, down to single tokens, has the logits that it has at once."""
    _each(subject, _chunked)


def batched_rows_are_independent(subject: Subject) -> None:
    """Sequences in one step, in prefill and decode at once, have the logits that they have alone."""
    _each(subject, _batched)


def prefix_blocks_can_be_shared(subject: Subject) -> None:
    """A sequence that starts with another's blocks, and computes only the rest, has the logits of the whole."""
    _each(subject, _shared_prefix)


def every_tensor_is_used_once(subject: Subject) -> None:
    """Each checkpoint tensor has one place, no place is left empty, and none is left out by a rule."""
    _each(subject, _tensors)


def missing_and_extra_tensors_are_errors(subject: Subject) -> None:
    """A checkpoint that lacks a tensor, or has one too many, is refused."""
    _each(subject, _damaged)


def shape_agrees_with_the_config(subject: Subject) -> None:
    """`shape` gives the sizes of the configuration, and the attention that the model really builds."""
    _each(subject, _shape)


def _prompt(subject: Subject, case: TinyCase) -> None:
    expected = _reference(subject, case)
    require(float(expected.std()) > 0.05, "the reference's logits are all alike, so that they prove nothing")
    _require_close(Decoder(subject, case).run([(Track(), TOKENS)])[0], expected, "a prompt")


def _chunked(subject: Subject, case: TinyCase) -> None:
    whole, decoder = _whole(subject, case), Decoder(subject, case)
    for pieces in ([9, 1, 11, 3], [16, *[1] * 8]):
        track, begin, found = Track(), 0, []
        for count in pieces:
            found.append(decoder.run([(track, TOKENS[begin : begin + count])])[0])
            begin += count
        _require_close(torch.cat(found), whole, f"a prompt in pieces of {pieces[:4]}")


def _batched(subject: Subject, case: TinyCase) -> None:
    whole, decoder = _whole(subject, case), Decoder(subject, case)
    other = decoder.run([(Track(), _OTHER)])[0]
    first, second = Track(), Track()
    begun = decoder.run([(first, TOKENS[:15])])[0]
    both = decoder.run([(second, _OTHER[:12]), (first, TOKENS[15:16])])
    last = decoder.run([(first, TOKENS[16:]), (second, _OTHER[12:])])
    _require_close(torch.cat([begun, both[1], last[0]]), whole, "a sequence beside another")
    _require_close(torch.cat([both[0], last[1]]), other, "a sequence beside another")


def _shared_prefix(subject: Subject, case: TinyCase) -> None:
    decoder, whole = Decoder(subject, case), _whole(subject, case)
    first = Track()
    decoder.run([(first, TOKENS[: 2 * BLOCK_SIZE])])
    second = Track(list(first.blocks), first.length)
    decoder.run([(first, _OTHER)])
    rest = decoder.run([(second, TOKENS[2 * BLOCK_SIZE :])])[0]
    _require_close(rest, whole[2 * BLOCK_SIZE :], "the rest behind a shared prefix")


def _tensors(subject: Subject, case: TinyCase) -> None:
    tensors = case.tensors()
    decoder = Decoder(subject, case, tensors)
    left_out = [tensor.name for tensor in tensors if decoder.names(tensor.name) is None]
    require(not left_out, f"the weight rules leave out {', '.join(left_out[:3])}, which the reference uses")
    unread = [tensor.name for tensor in tensors if not tensor.reads]
    require(not unread, f"{', '.join(unread[:3])} is never read")
    places = [decoder.names(tensor.name) for tensor in tensors]
    require(len(places) == len(set(places)), "two checkpoint tensors get one name by the weight rules")
    empty = decoder.targets - {place for place in places if place}
    require(not empty, f"the model has places that no tensor fills: {', '.join(sorted(empty)[:3])}")


def _damaged(subject: Subject, case: TinyCase) -> None:
    tensors = case.tensors()
    for index in (0, len(tensors) // 2, len(tensors) - 1):
        _require_refused(subject, case, tensors[:index] + tensors[index + 1 :], f"without {tensors[index].name}")
    extra = PlainTensor(_EXTRA, torch.zeros(4, 4))
    _require_refused(subject, case, [*tensors, extra], f"with a tensor {_EXTRA}")


def _shape(subject: Subject, case: TinyCase) -> None:
    shape = subject.load(subject.spec(ModelSpec).shape)(settings(case))
    require(isinstance(shape, ModelShape), f"shape gives a {type(shape).__name__}")
    config = case.reference.config
    due = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size}
    due["max_positions"] = config.max_position_embeddings
    attentions = Decoder(subject, case).attentions
    due |= {"num_layers": len(attentions), "num_heads": attentions[0].site.num_heads}
    due |= {"num_kv_heads": attentions[0].site.num_kv_heads, "head_dim": attentions[0].site.head_dim}
    found = {name: getattr(shape, name) for name in due}
    wrong = [f"{name} is {found[name]}, not {value}" for name, value in due.items() if found[name] != value]
    require(not wrong, "; ".join(wrong))
    used = {"sliding_window" for one in attentions if one.site.window is not None}
    used |= {"softcap" for one in attentions if one.site.softcap is not None}
    lacks = sorted(used - shape.features)
    require(not lacks, f"the model uses {', '.join(lacks)}, but its shape's features do not say so")


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
    if "generate" not in subject.spec(ModelSpec).tasks:
        raise NotApplicable("it does not generate")
    cases = subject.once("tiny models", lambda: tiny_cases(subject))
    if not cases:
        raise Unavailable("there is no tiny configuration for any of its architectures")
    return cases


def _reference(subject: Subject, case: TinyCase) -> Tensor:
    return subject.once(f"logits of {case.name}", lambda: case.logits(TOKENS))


def _whole(subject: Subject, case: TinyCase) -> Tensor:
    """Return the plugin's own logits of a prompt at once: the yardstick for everything but that."""
    key = f"whole {case.name} {subject.device}"
    return subject.once(key, lambda: Decoder(subject, case).run([(Track(), TOKENS)])[0])


def _require_close(found: Tensor, expected: Tensor, what: str) -> None:
    error, allowed = largest_difference(found, expected), _TOLERANCE * float(expected.abs().max())
    require(error <= allowed, f"{what}: a logit is off by {error:.2g}, allowed {allowed:.2g}")


def _require_refused(subject: Subject, case: TinyCase, tensors: list[PlainTensor], where: str) -> None:
    try:
        Decoder(subject, case, tensors)
    except CheckpointError:
        return
    raise Failed(f"a checkpoint {where} is loaded as if nothing were wrong")


CHECKS = (
    Check(every_architecture_can_be_checked),
    *(
        Check(function, Level.L1, on_device=True)
        for function in (
            logits_equal_transformers,
            chunked_prefill_equals_whole,
            batched_rows_are_independent,
            prefix_blocks_can_be_shared,
            every_tensor_is_used_once,
            missing_and_extra_tensors_are_errors,
            shape_agrees_with_the_config,
        )
    ),
)
