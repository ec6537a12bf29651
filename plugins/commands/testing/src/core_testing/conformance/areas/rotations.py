"""Attention backends with the feature `rotary`: queries and keys that are rotated while keys are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from core.api.attention import AttentionPlan, Rotation, StoresRotated
from core.api.descriptors import AttentionSpec
from core.api.rotary import RopeConfig
from core.ops.rotary import rotary, rotary_interleaved, rotary_table
from core_testing.conformance.areas.attention import base_geometry, supports
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import dtype_of
from core_testing.conformance.tools.paged import Geometry, PagedBench, Row, Step

_LONGEST = 64


class _RotatedBench(PagedBench):
    """Layers are given what is not rotated; the reference attends to what core's rotary embedding makes of it."""

    def __init__(self, subject: Subject, geometry: Geometry, turned: int, *, interleaved: bool) -> None:
        config = RopeConfig(head_dim=geometry.head_dim, rotary_dim=turned, interleaved=interleaved)
        self._interleaved = interleaved
        self._table = rotary_table(config, _LONGEST).to(dtype_of(geometry.dtype))
        self._given: list[tuple[list[Tensor], list[Tensor]]] = []
        super().__init__(subject, geometry, (37, 18, 50, 9))

    def inputs(self, step: Step, layer: int, name: str) -> Tensor:
        """Return queries and keys as they were before, and values."""
        if name == "v":
            return super().inputs(step, layer, name)
        of = [self._given[i]["qk".index(name)][layer][start : start + count] for i, start, count in step.work]
        return torch.cat(of).to(self.device)

    def _row(self, length: int, rng: torch.Generator) -> Row:
        row, dtype = super()._row(length, rng), dtype_of(self.geometry.dtype)
        given = [one.to(dtype) for one in row.q], [one.to(dtype) for one in row.k]
        self._given.append(given)
        turn, places = rotary_interleaved if self._interleaved else rotary, torch.arange(length)
        for layer, (q, k) in enumerate(zip(*given, strict=True)):
            q, k = turn(places, q, k, self._table)
            row.q[layer], row.k[layer] = q.float(), k.to(dtype_of(self.geometry.kv_dtype)).float()
        return row

    def _attend(self, step: Step, layer: int, plan: AttentionPlan) -> Tensor:
        q, k, v = (self.inputs(step, layer, name) for name in "qkv")
        before = q.clone(), k.clone()
        places = torch.cat([torch.arange(start, start + count) for _, start, count in step.work]).to(self.device)
        rotation = Rotation(places, self._table.to(self.device), self._interleaved)
        cache, own = self.caches[layer], cast(StoresRotated, self.layers[layer])
        turned = own.write_rotated(q, k, v, rotation, cache, plan)
        require(turned.shape == q.shape and turned.dtype == q.dtype, "write_rotated gives other sizes than the query's")
        require(torch.equal(q, before[0]) and torch.equal(k, before[1]), "write_rotated changes what it was given")
        return cast(Tensor, self.layers[layer].forward(turned, cache, plan))


def stores_rotate_as_the_reference(subject: Subject) -> None:
    """All of a head and a part of it, halves and neighbours; what was given stays as it is."""
    base = _geometry(subject)
    for turned in (base.head_dim, base.head_dim // 4 * 2):
        for interleaved in (False, True):
            _run(_RotatedBench(subject, base, turned, interleaved=interleaved))


def rotated_sizes_match_reference(subject: Subject) -> None:
    """Every declared pair of dtypes, heads that share keys, and sizes of heads."""
    for geometry in _geometries(subject):
        _run(_RotatedBench(subject, geometry, geometry.head_dim, interleaved=False))


def _run(bench: _RotatedBench) -> None:
    for counts in ((35, 0, 30, 8), (1, 17, 19, 0), (1, 1, 1, 1)):
        bench.step(counts)


def _geometry(subject: Subject) -> Geometry:
    if "rotary" not in subject.spec(AttentionSpec).features:
        raise NotApplicable("it does not declare rotary")
    return base_geometry(subject)


def _geometries(subject: Subject) -> Iterator[Geometry]:
    base, spec = _geometry(subject), subject.spec(AttentionSpec)
    pairs = [(dtype, kv_dtype) for dtype in sorted(spec.dtypes) for kv_dtype in sorted(spec.kv_dtypes)]
    tried = [
        *(replace(base, dtype=dtype, kv_dtype=kv_dtype) for dtype, kv_dtype in pairs),
        *(replace(base, heads=heads, kv_heads=kv_heads) for heads, kv_heads in ((4, 4), (4, 1), (6, 2))),
        *(replace(base, head_dim=dim) for dim in sorted(spec.head_dims or (16, 80, 128))),
    ]
    yield from (geometry for geometry in tried if supports(subject, geometry))


CHECKS = checks(stores_rotate_as_the_reference, rotated_sizes_match_reference, on_device=True)
