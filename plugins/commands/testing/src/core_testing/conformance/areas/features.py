"""Attention backends with features that the kit does not know: held to references of the plugin's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from core.api.descriptors import AttentionSpec
from core_testing.conformance.areas.attention import base_geometry, supports
from core_testing.conformance.device_samples import AttentionSample
from core_testing.conformance.outcome import NotApplicable, Unavailable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.paged import Geometry, PagedBench

KNOWN = frozenset(
    {
        "sliding_window",
        "softcap",
        "alibi",
        "alibi_root",
        "sinks",
        "chunked",
        "latent",
        "picks",
        "compressed",
        "head_scales",
        "rotary",
        "bidirectional",
        "position_bias",
        "replayable",
        "replayable_prompts",
    }
)
"""Features whose meaning the kit has checks for."""


def every_feature_can_be_checked(subject: Subject) -> None:
    """Every feature that it declares is one of the kit's, or a sample of the plugin has its reference."""
    declared = subject.spec(AttentionSpec).features
    samples = {sample.feature for sample in subject.samples(AttentionSample)}
    strange = sorted(samples - declared)
    require(not strange, f"its samples are of {', '.join(strange)}, which the descriptor's features lack")
    missing = sorted(declared - KNOWN - samples)
    if missing:
        raise Unavailable(subject.wants(AttentionSample, f"the kit has no reference of {', '.join(missing)}"))


def features_match_their_references(subject: Subject) -> None:
    """Layers with a feature of a sample give what its reference gives: prompts, pieces and single tokens."""
    samples = subject.samples(AttentionSample)
    if not samples:
        raise NotApplicable("it ships no AttentionSample")
    for sample in samples:
        for geometry in _geometries(subject):
            bench = PagedBench(subject, geometry, (37, 18, 50, 9), feature=sample)
            for counts in ((35, 0, 30, 9), (1, 17, 19, 0), (1, 1, 1, 0)):
                bench.step(counts)


def features_in_pieces_equal_the_whole(subject: Subject) -> None:
    """A prompt in pieces of any size gives what its reference gives for the whole, wherever its blocks lie."""
    samples = subject.samples(AttentionSample)
    if not samples:
        raise NotApplicable("it ships no AttentionSample")
    for sample in samples:
        bench = PagedBench(subject, base_geometry(subject), (61, 47), stray=True, feature=sample)
        for counts in ((7, 16), (16, 15), (1, 16), (37, 0)):
            bench.step(counts)


def _geometries(subject: Subject) -> Iterator[Geometry]:
    """Yield what the backend supports: heads that share keys, head dimensions, block sizes, dtypes and a window."""
    base, spec = base_geometry(subject), subject.spec(AttentionSpec)
    pairs = [(dtype, kv_dtype) for dtype in sorted(spec.dtypes) for kv_dtype in sorted(spec.kv_dtypes)]
    tried = [
        *(replace(base, dtype=dtype, kv_dtype=kv_dtype) for dtype, kv_dtype in pairs),
        *(replace(base, heads=heads, kv_heads=kv_heads) for heads, kv_heads in ((4, 4), (4, 1), (6, 2))),
        *(replace(base, head_dim=dim) for dim in sorted(spec.head_dims or (16, 80, 128))),
        *(replace(base, block_size=factor * spec.block_multiple) for factor in (1, 3)),
        *(replace(base, windows=(window,)) for window in (7, 21) if "sliding_window" in spec.features),
    ]
    yield from (geometry for geometry in tried if supports(subject, geometry))


CHECKS = checks(
    every_feature_can_be_checked,
    features_match_their_references,
    features_in_pieces_equal_the_whole,
    on_device=True,
)
