"""Attention backends with the feature `latent`: multi-head latent attention against its definition in float32."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import cast

import torch

from core.api.attention import TakesScales
from core.api.descriptors import AttentionSpec
from core_testing.conformance.areas.attention import base_geometry, supports
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import largest_difference
from core_testing.conformance.tools.latents import LatentBench, LatentGeometry
from core_testing.conformance.tools.paged import Geometry

_GARBAGE = 2.0e4
_LONG = (150, 90)
"""Prompts so long that a backend may expand their latents."""


def latent_layers_match_reference(subject: Subject) -> None:
    """Prompts, later pieces and single tokens of sequences of several lengths, side by side, by one plan."""
    bench = LatentBench(subject, replace(_geometry(subject), layers=2), (1, 37, 150, 18, 66))
    bench.step((1, 35, 100, 0, 64))
    bench.step((0, 1, 49, 17, 1))
    bench.step((0, 1, 1, 1, 1))


def latent_sizes_match_reference(subject: Subject) -> None:
    """Numbers of heads, sizes of latents, keys and values, and sizes of blocks."""
    base, step = _geometry(subject), subject.spec(AttentionSpec).block_multiple
    _every(
        subject,
        [
            *(replace(base, heads=heads) for heads in (1, 3, 16)),
            replace(base, latent_dim=16, rope_dim=8, key_dim=64, value_dim=80),
            replace(base, latent_dim=512, rope_dim=64, key_dim=128, value_dim=128),
            *(replace(base, block_size=size) for size in (step, 3 * step, -(-64 // step) * step)),
        ],
    )


def latent_dtypes_match_reference(subject: Subject) -> None:
    """Every declared pair of a compute dtype and a cache dtype."""
    base, spec = _geometry(subject), subject.spec(AttentionSpec)
    pairs = [(dtype, kv_dtype) for dtype in sorted(spec.dtypes) for kv_dtype in sorted(spec.kv_dtypes)]
    _every(subject, (replace(base, dtype=dtype, kv_dtype=kv_dtype) for dtype, kv_dtype in pairs))


def latent_scales_are_applied(subject: Subject) -> None:
    """Latents and rotated keys far beyond the range of float8 come through a scale, where its layers take one."""
    base, spec = _geometry(subject), subject.spec(AttentionSpec)
    found = [replace(base, kv_dtype=one) for one in sorted(spec.kv_dtypes) if one.startswith("float8")]
    geometry = next((one for one in found if _supported(subject, one)), None)
    if geometry is None:
        raise NotApplicable("it has no cache of float8 for latents")
    bench, factor = LatentBench(subject, geometry, (37, 18, 150)), 2.0**17
    if not hasattr(bench.latent_layers[0], "use_scales"):
        raise NotApplicable("its latent layers take no scales")
    for layer in bench.latent_layers:
        cast(TakesScales, layer).use_scales(torch.tensor(factor), torch.tensor(factor))
    for row in bench.rows:
        row.q, row.k = [one / factor for one in row.q], [one * factor for one in row.k]
    for counts in ((35, 0, 130), (1, 17, 19), (1, 1, 1)):
        step = bench.prepare(counts)
        (output,) = bench.run(step)
        error = largest_difference(output / factor, bench.reference(step, 0) / factor)
        allowed = geometry.tolerance(bench.device)
        require(error <= allowed, f"with a scale an output is off by {error:.2g}, allowed {allowed:g} ({geometry})")


def latent_pieces_equal_the_whole(subject: Subject) -> None:
    """A prompt in pieces gives what it gives at once, wherever its blocks lie and whatever else is in the cache."""
    geometry = _geometry(subject)
    whole = LatentBench(subject, geometry, _LONG, tidy=True).step(_LONG)[0]
    for fill, stray in ((_GARBAGE, False), (-_GARBAGE, True)):
        bench = LatentBench(subject, geometry, _LONG, fill=fill, stray=stray)
        pieces = [bench.step(counts, check=False)[0] for counts in ((7, 16), (100, 15), (1, 59), (42, 0))]
        first = torch.cat([pieces[0][:7], pieces[1][:100], pieces[2][:1], pieces[3]])
        second = torch.cat([pieces[0][7:], pieces[1][100:], pieces[2][1:]])
        error, allowed = largest_difference(torch.cat([first, second]), whole), geometry.tolerance(bench.device)
        require(error <= allowed, f"a prompt in pieces differs from the whole by {error:.2g}, allowed {allowed:g}")


def latent_blocks_can_be_copied(subject: Subject) -> None:
    """`cache[b]` is block b and all of it: copied elsewhere, with the table pointing there, nothing changes."""
    bench = LatentBench(subject, _geometry(subject), (52, 40))
    bench.step((50, 38), check=False)
    for row, index in ((0, 0), (0, 3), (1, 1)):
        bench.move_block(row, index)
    bench.step((1, 2))


def latent_layers_take_other_weights(subject: Subject) -> None:
    """`use_up` replaces the up-projection for the next step, also for what is in the cache."""
    bench = LatentBench(subject, _geometry(subject), (30, 90))
    bench.step((29, 10))
    bench.use_up(2)
    bench.step((1, 80))


def latent_layout_holds_a_token(subject: Subject) -> None:
    """The declared block is large enough for its latents and rotated keys in the cache's dtype."""
    geometry = _geometry(subject)
    bench = LatentBench(subject, geometry, (1,))
    (layout,) = bench._layouts()
    due = geometry.block_size * (geometry.latent_dim + geometry.rope_dim) * bench.caches[0].element_size()
    require(
        layout.bytes_per_block >= due,
        f"a block of {geometry.block_size} tokens is said to take {layout.bytes_per_block} bytes, it needs {due}",
    )


def _geometry(subject: Subject) -> LatentGeometry:
    """Return sizes that the plugin takes. Raises `NotApplicable` for one without latent attention."""
    if "latent" not in subject.spec(AttentionSpec).features:
        raise NotApplicable("it does not declare latent")
    base = base_geometry(subject)
    small = LatentGeometry(**{field.name: getattr(base, field.name) for field in fields(Geometry)})
    deepseek = replace(small, latent_dim=512, rope_dim=64, key_dim=128, value_dim=128)
    for one in (small, deepseek):
        if _supported(subject, one):
            return one
    raise NotApplicable("it takes neither small latents nor those of DeepSeek V3")


def _supported(subject: Subject, geometry: LatentGeometry) -> bool:
    return supports(subject, replace(geometry, head_dim=geometry.key_dim + geometry.rope_dim, kv_heads=geometry.heads))


def _every(subject: Subject, geometries: Iterable[LatentGeometry]) -> None:
    """Run prompts, a later piece and single tokens with every geometry that the plugin supports."""
    for geometry in geometries:
        if _supported(subject, geometry):
            bench = LatentBench(subject, geometry, (37, 18, 100))
            for counts in ((35, 0, 80), (1, 17, 19), (1, 1, 1)):
                bench.step(counts)


CHECKS = checks(
    latent_layers_match_reference,
    latent_sizes_match_reference,
    latent_dtypes_match_reference,
    latent_scales_are_applied,
    latent_pieces_equal_the_whole,
    latent_blocks_can_be_copied,
    latent_layers_take_other_weights,
    latent_layout_holds_a_token,
    on_device=True,
)
