"""Attention backends with the feature `picks`: pickers against index scores, latent attention against what it sees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from core.api.descriptors import AttentionSpec
from core_testing.conformance.areas.attention import base_geometry, supports
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.paged import Geometry
from core_testing.conformance.tools.picks import PickBench, PickGeometry

_GARBAGE = 2.0e4


def picks_match_reference(subject: Subject) -> None:
    """Prompts, later pieces and single tokens of sequences shorter and longer than the picks, by one plan."""
    bench = PickBench(subject, replace(_geometry(subject), layers=2), (1, 37, 150, 18, 66))
    bench.step((1, 35, 100, 0, 64))
    bench.step((0, 1, 49, 17, 1))
    bench.step((0, 1, 1, 1, 1))


def pick_sizes_match_reference(subject: Subject) -> None:
    """Numbers of picks, of heads, sizes of index keys, and sizes of blocks."""
    base, step = _geometry(subject), subject.spec(AttentionSpec).block_multiple
    _every(
        subject,
        [
            *(replace(base, picks=picks) for picks in (1, 8, 64)),
            *(replace(base, index_heads=heads, index_dim=32) for heads in (32, 64)),
            replace(base, index_heads=64, index_dim=128, latent_dim=512, rope_dim=64, key_dim=128, value_dim=128),
            *(replace(base, block_size=size) for size in (step, 3 * step, -(-64 // step) * step)),
        ],
    )


def pick_dtypes_match_reference(subject: Subject) -> None:
    """Every declared pair of a compute dtype and a cache dtype."""
    base, spec = _geometry(subject), subject.spec(AttentionSpec)
    pairs = [(dtype, kv_dtype) for dtype in sorted(spec.dtypes) for kv_dtype in sorted(spec.kv_dtypes)]
    _every(subject, (replace(base, dtype=dtype, kv_dtype=kv_dtype) for dtype, kv_dtype in pairs))


def rows_within_the_picks_see_everything(subject: Subject) -> None:
    """Where no row is longer than the picks every query sees all, whether the picker says so or returns None."""
    geometry = replace(_geometry(subject), picks=48)
    bench = PickBench(subject, geometry, (48, 17, 5))
    for counts in ((47, 3, 4), (1, 13, 0), (0, 1, 1)):
        bench.step(counts)


def unused_index_keys_are_never_picked(subject: Subject) -> None:
    """Index keys behind a row's last token, and in other rows' blocks, are not picked, however large their scores."""
    for fill, stray in ((_GARBAGE, False), (-_GARBAGE, True)):
        bench = PickBench(subject, _geometry(subject), (61, 47), fill=fill, stray=stray)
        for counts in ((7, 16), (30, 30), (1, 1), (22, 0), (1, 0)):
            bench.step(counts)


def picker_blocks_can_be_copied(subject: Subject) -> None:
    """`cache[b]` is block b and all of it: copied elsewhere, with the table pointing there, nothing changes."""
    bench = PickBench(subject, _geometry(subject), (52, 40))
    bench.step((50, 38), check=False)
    for row, index in ((0, 0), (0, 2), (1, 1)):
        bench.move_block(row, index)
    bench.step((1, 2))


def picker_layout_holds_a_token(subject: Subject) -> None:
    """The declared block is large enough for its index keys in the cache's dtype."""
    geometry = _geometry(subject)
    bench = PickBench(subject, geometry, (1,))
    layout = bench._layouts()[-1]
    due = geometry.block_size * geometry.index_dim * bench.caches[-1].element_size()
    require(
        layout.bytes_per_block >= due,
        f"a block of {geometry.block_size} index keys is said to take {layout.bytes_per_block} bytes, it needs {due}",
    )


def _geometry(subject: Subject) -> PickGeometry:
    """Return sizes that the plugin takes. Raises `NotApplicable` for one that picks no positions."""
    features = subject.spec(AttentionSpec).features
    if "picks" not in features:
        raise NotApplicable("it does not declare picks")
    require("latent" in features, "it declares picks, which are of latent layers, and not latent")
    base = base_geometry(subject)
    return PickGeometry(**{field.name: getattr(base, field.name) for field in fields(Geometry)})


def _every(subject: Subject, geometries: Iterable[PickGeometry]) -> None:
    """Run prompts, a later piece and single tokens with every geometry that the plugin supports."""
    for geometry in geometries:
        size = geometry.key_dim + geometry.rope_dim
        if supports(subject, replace(geometry, head_dim=size, kv_heads=geometry.heads)):
            bench = PickBench(subject, geometry, (37, 18, 100))
            for counts in ((35, 0, 80), (1, 17, 19), (1, 1, 1)):
                bench.step(counts)


CHECKS = checks(
    picks_match_reference,
    pick_sizes_match_reference,
    pick_dtypes_match_reference,
    rows_within_the_picks_see_everything,
    unused_index_keys_are_never_picked,
    picker_blocks_can_be_copied,
    picker_layout_holds_a_token,
    on_device=True,
)
