"""Attention backends with the feature `compressed`: attention to entries, and pickers of entries, by definition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from math import lcm

from core.api.descriptors import AttentionSpec
from core_testing.conformance.areas.attention import base_geometry, supports
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.compressed import CompressedBench, CompressedGeometry
from core_testing.conformance.tools.paged import Geometry

_GARBAGE = 2.0e4


def entries_match_reference(subject: Subject) -> None:
    """Prompts, later pieces and single tokens that end entries and do not, of short and long sequences, by one plan."""
    bench = CompressedBench(subject, _geometry(subject), (3, 37, 150, 18, 66))
    bench.step((1, 35, 100, 0, 64))
    bench.step((0, 1, 49, 17, 1))
    bench.step((2, 1, 1, 1, 1))


def entry_sizes_match_reference(subject: Subject) -> None:
    """Ratios up to a whole block, numbers of picks, of heads, and sizes of entries."""
    base = _geometry(subject)
    long = replace(base, block_size=lcm(base.block_size, 16), long_ratio=16)
    _every(
        subject,
        [
            *(replace(base, picks=picks) for picks in (1, 3, 32)),
            replace(base, ratio=2),
            long,
            replace(base, heads=16, head_dim=128, index_heads=32, index_dim=64),
        ],
    )


def entry_dtypes_match_reference(subject: Subject) -> None:
    """Every declared pair of a compute dtype and a cache dtype."""
    base, spec = _geometry(subject), subject.spec(AttentionSpec)
    pairs = [(dtype, kv_dtype) for dtype in sorted(spec.dtypes) for kv_dtype in sorted(spec.kv_dtypes)]
    _every(subject, (replace(base, dtype=dtype, kv_dtype=kv_dtype) for dtype, kv_dtype in pairs))


def unused_entries_are_never_seen(subject: Subject) -> None:
    """Entries behind a row's last one, and in other rows' blocks, are neither picked nor attended to."""
    for fill, stray in ((_GARBAGE, False), (-_GARBAGE, True)):
        bench = CompressedBench(subject, _geometry(subject), (61, 47), fill=fill, stray=stray)
        for counts in ((7, 16), (30, 30), (1, 1), (22, 0), (1, 0)):
            bench.step(counts)


def entry_blocks_can_be_copied(subject: Subject) -> None:
    """`cache[b]` is block b and all of it: copied elsewhere, with the table pointing there, nothing changes."""
    bench = CompressedBench(subject, _geometry(subject), (52, 40))
    bench.step((50, 38), check=False)
    for row, index in ((0, 0), (0, 2), (1, 1)):
        bench.move_block(row, index)
    bench.step((1, 2))


def _geometry(subject: Subject) -> CompressedGeometry:
    """Return sizes that the plugin takes. Raises `NotApplicable` for one that does not attend to entries."""
    if "compressed" not in subject.spec(AttentionSpec).features:
        raise NotApplicable("it does not declare compressed")
    base = base_geometry(subject)
    given = {field.name: getattr(base, field.name) for field in fields(Geometry)}
    return CompressedGeometry(**{**given, "block_size": lcm(base.block_size, 8)})


def _every(subject: Subject, geometries: Iterable[CompressedGeometry]) -> None:
    """Run prompts, a later piece and single tokens with every geometry that the plugin supports."""
    tried = 0
    for geometry in geometries:
        if supports(subject, replace(geometry, kv_heads=geometry.heads)):
            tried += 1
            bench = CompressedBench(subject, geometry, (37, 18, 100))
            for counts in ((35, 0, 80), (1, 17, 19), (1, 1, 1)):
                bench.step(counts)
    require(tried > 0, "it supports none of the sizes that the check tries")


CHECKS = checks(
    entries_match_reference,
    entry_sizes_match_reference,
    entry_dtypes_match_reference,
    unused_entries_are_never_seen,
    entry_blocks_can_be_copied,
    on_device=True,
)
