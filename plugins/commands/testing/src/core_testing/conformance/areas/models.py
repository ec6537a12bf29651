"""Models: transformers' logits for every architecture, in any order of steps, from exactly the tensors that exist."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from core.api.attention import CompressedSite, LatentSite, PickSite
from core.api.descriptors import ModelSpec
from core.api.errors import CheckpointError
from core.api.ranks import Ranks
from core_testing.conformance.outcome import NotApplicable, Unavailable, checks, require, require_core_error
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.decoder import Decoder, Track, decoder_cases
from core_testing.conformance.tools.tiny_cases import (
    BLOCK_SIZE,
    INDIVISIBLE,
    Site,
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
from core_testing.tinymodels import VOCAB_SIZE

TOKENS = [(7 * index * index + 3 * index + 11) % VOCAB_SIZE for index in range(24)]
_OTHER = [(5 * index * index + index + 3) % VOCAB_SIZE for index in range(13)]
_TOLERANCE = 2e-3
"""Of the greatest logit."""

_EXTRA = "model.layers.0.self_attn.no_such_projection.weight"


def _cases(subject: Subject) -> list[TinyCase]:
    if "generate" not in subject.spec(ModelSpec).tasks:
        raise NotApplicable("it does not generate")
    cases = subject.once("tiny models", lambda: decoder_cases(subject))
    if not cases:
        raise Unavailable("there is no tiny configuration for any of its architectures")
    return cases


_each = for_each(_cases)


def every_architecture_can_be_checked(subject: Subject) -> None:
    """There is a tiny configuration for each architecture of the descriptor, the kit's or the plugin's."""
    require_every_architecture(subject, _cases(subject))


@_each
def logits_equal_transformers(subject: Subject, case: TinyCase) -> None:
    """A prompt's logits are those of transformers' model with the same random weights."""
    with torch.no_grad():
        expected = case.reference(torch.tensor([TOKENS])).logits[0]
    require(float(expected.std()) > 0.05, "the reference's logits are all alike, so that they prove nothing")
    _require_close(_whole(subject, case), expected, "a prompt")


@_each
def chunked_prefill_equals_whole(subject: Subject, case: TinyCase) -> None:
    """A prompt in pieces, down to single tokens, has the logits that it has at once."""
    whole, decoder = _whole(subject, case), Decoder(subject, case)
    for pieces in ([9, 1, 11, 3], [16, *[1] * 8]):
        track, begin, found = Track(), 0, []
        for count in pieces:
            found.append(decoder.run([(track, TOKENS[begin : begin + count])])[0])
            begin += count
        _require_close(torch.cat(found), whole, f"a prompt in pieces of {pieces[:4]}")


@_each
def batched_rows_are_independent(subject: Subject, case: TinyCase) -> None:
    """Sequences in one step, in prefill and decode at once, have the logits that they have alone."""
    whole, decoder = _whole(subject, case), Decoder(subject, case)
    other = decoder.run([(Track(), _OTHER)])[0]
    first, second = Track(), Track()
    begun = decoder.run([(first, TOKENS[:15])])[0]
    both = decoder.run([(second, _OTHER[:12]), (first, TOKENS[15:16])])
    last = decoder.run([(first, TOKENS[16:]), (second, _OTHER[12:])])
    _require_close(torch.cat([begun, both[1], last[0]]), whole, "a sequence beside another")
    _require_close(torch.cat([both[0], last[1]]), other, "a sequence beside another")


@_each
def prefix_blocks_can_be_shared(subject: Subject, case: TinyCase) -> None:
    """A sequence that starts with another's blocks and states, and computes the rest, has the logits of the whole."""
    decoder, whole = Decoder(subject, case), _whole(subject, case)
    first = Track()
    decoder.run([(first, TOKENS[: 2 * BLOCK_SIZE])])
    second = decoder.fork(first)
    decoder.run([(first, _OTHER)])
    rest = decoder.run([(second, TOKENS[2 * BLOCK_SIZE :])])[0]
    _require_close(rest, whole[2 * BLOCK_SIZE :], "the rest behind a shared prefix")


@_each
def ranks_share_the_model(subject: Subject, case: TinyCase) -> None:
    """Two ranks, each with half of the heads, give together the logits of one; or their number is refused by name."""
    whole = Decoder(subject, case)

    def rank(ranks: Ranks, all_reduce: Callable[[Tensor], Tensor]) -> tuple[Decoder, list[Tensor]]:
        decoder, track = Decoder(subject, case, ranks=ranks, all_reduce=all_reduce), Track()
        return decoder, [decoder.run([(track, tokens)])[0] for tokens in (TOKENS[:9], TOKENS[9:])]

    try:
        found = run_ranks(2, rank)
    except CheckpointError as error:
        require(error.code in INDIVISIBLE, f"two ranks are refused otherwise than by their number: {error}")
        return
    require_divided(2, [decoder.sites for decoder, _ in found], whole.sites)
    logits = torch.cat([torch.cat(steps) for _, steps in found], dim=-1)
    _require_close(logits, _whole(subject, case), "two ranks")


@_each
def every_tensor_is_used_once(subject: Subject, case: TinyCase) -> None:
    """Each checkpoint tensor has one place, no place is left empty, and none is left out by a rule."""
    tensors = case.tensors()
    decoder = Decoder(subject, case, tensors)
    places = {tensor.name: decoder.names(tensor.name) for tensor in tensors}
    left_out = [name for name, place in places.items() if place is None]
    require(not left_out, f"the weight rules leave out {', '.join(left_out[:3])}, which the reference uses")
    unread = [tensor.name for tensor in tensors if not tensor.reads]
    require(not unread, f"{', '.join(unread[:3])} is never read")
    require(len(places) == len(set(places.values())), "two checkpoint tensors get one name by the weight rules")
    empty = decoder.targets - set(places.values())
    require(not empty, f"the model has places that no tensor fills: {', '.join(sorted(empty)[:3])}")


@_each
def missing_and_extra_tensors_are_errors(subject: Subject, case: TinyCase) -> None:
    """A checkpoint that lacks a tensor, or has one too many, is refused."""
    tensors = case.tensors()
    places = (0, len(tensors) // 2, len(tensors) - 1)
    require_damage_refused(lambda left: Decoder(subject, case, left), tensors, places, _EXTRA)


@_each
def shape_agrees_with_the_config(subject: Subject, case: TinyCase) -> None:
    """`shape` gives the sizes of the configuration, and the attention and rotary embeddings that the model builds."""
    decoder = Decoder(subject, case)
    config = case.reference.config
    # What only picks positions for attention is no layer of the model.
    sites = [one.site for one in decoder.attentions if not isinstance(one.site, PickSite)]
    due = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "max_positions": config.max_position_embeddings,
        "num_layers": len(sites),
        **_heads_of(sites[0]),
    }
    used = {feature for site in sites for feature in _features_of(site)}
    require_shape(shape_of(subject, case), due, used, decoder.ropes)


def _heads_of(site: Site) -> dict[str, int]:
    """Return what a shape says of a layer's heads: of latent ones each has keys of its own, entries serve all."""
    if isinstance(site, CompressedSite):
        return {"num_heads": site.num_heads, "num_kv_heads": 1, "head_dim": site.head_dim}
    if isinstance(site, LatentSite):
        return {
            "num_heads": site.num_heads,
            "num_kv_heads": site.num_heads,
            "head_dim": site.key_dim + site.rope_dim,
        }
    return {"num_heads": site.num_heads, "num_kv_heads": site.num_kv_heads, "head_dim": site.head_dim}


def _features_of(site: Site) -> set[str]:
    """Return the attention features that a layer uses."""
    if isinstance(site, CompressedSite):
        return {"compressed"}
    if isinstance(site, LatentSite):
        return {"latent"} if site.picks is None else {"latent", "picks"}
    alibi = "alibi_root" if site.rooted else "alibi"
    traits = {"sliding_window": site.window, "softcap": site.softcap, alibi: site.slopes}
    return {name for name, value in traits.items() if value is not None}


@_each
def rotary_scaling_makes_the_context(subject: Subject, case: TinyCase) -> None:
    """YaRN makes the context of a model with rotary embeddings `factor` times as long; unknown rules are refused."""
    if not shape_of(subject, case).ropes:
        return
    due = 4 * case.reference.config.max_position_embeddings
    found = shape_of(subject, case, {"rope_type": "yarn", "factor": 4.0}).max_positions
    require(found == due, f"with YaRN of factor 4, max_positions is {found}, not {due}")
    unknown = {"rope_type": "no-such-rule"}
    require_core_error(shape_of, subject, case, unknown, what="an unknown rotary scaling", kind=CheckpointError)


def _whole(subject: Subject, case: TinyCase) -> Tensor:
    """Return the plugin's own logits of a prompt at once: the yardstick for everything but that."""
    key = f"whole {case.name} {subject.device}"
    return subject.once(key, lambda: Decoder(subject, case).run([(Track(), TOKENS)])[0])


def _require_close(found: Tensor, expected: Tensor, what: str) -> None:
    require_close(found, expected, _TOLERANCE, f"{what}: a logit")


CHECKS = (
    *checks(every_architecture_can_be_checked),
    *checks(
        logits_equal_transformers,
        chunked_prefill_equals_whole,
        batched_rows_are_independent,
        prefix_blocks_can_be_shared,
        ranks_share_the_model,
        every_tensor_is_used_once,
        missing_and_extra_tensors_are_errors,
        shape_agrees_with_the_config,
        rotary_scaling_makes_the_context,
        on_device=True,
    ),
)
