"""Quantization methods on ranks: what each reads of its share of a layer is that slice of the whole weight."""

from __future__ import annotations

from typing import cast

import torch

from core.api.descriptors import QuantSpec
from core.api.errors import CheckpointError
from core.api.layers import Shard
from core.api.quantization import LayerSite
from core.api.ranks import Ranks
from core.layers.roles import Placed, Roles
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import plainest
from core_testing.conformance.tools.layers import Case, LayerBench, cases
from core_testing.layers import fill, make_layer

_REFUSED = frozenset({"CORE-M184", "CORE-M185"})
"""Errors of a layer that cannot be divided among so many ranks."""


def ranks_read_slices_of_the_weight(subject: Subject) -> None:
    """On 2 and on 4 ranks a layer's opened weight is a slice of the whole one, or the cut is refused by name."""
    divided = 0
    for case in cases(subject):
        for site in case.sites:
            whole = LayerBench(subject, case, site, plainest(subject.spec(QuantSpec).dtypes))
            for size, shard in ((2, "out"), (4, "out"), (2, "in"), (4, "in")):
                divided += _divided(subject, case, whole, size, cast("Shard", shard))
    if not divided:
        raise NotApplicable("no layer of its samples can be divided among ranks")


def _divided(subject: Subject, case: Case, whole: LayerBench, size: int, shard: Shard) -> int:
    """Compare the ranks' weights with slices of the whole; return on how many ranks."""
    found = 0
    weight = whole.layer.params["weight"]
    starts = torch.split(weight, [rows for _, rows in whole.site.parts])
    for rank in range(size):
        try:
            placed = _placed(subject, case, whole.site, Ranks(rank, size), shard)
            if placed is None:
                return 0
            layer = make_layer(whole.format, placed.site, cuts=placed.cuts, device=whole.device, dtype=whole.dtype)
            fill(layer.group, case.tensors(), whole.device)
        except CheckpointError as error:
            require(error.code in _REFUSED, f"{case.name}, {whole.site.prefix} on {size} ranks: {error}")
            return found
        rows = torch.cat([cut.take(part, 0) for cut, part in zip(placed.cuts.outputs, starts, strict=True)])
        due = placed.cuts.inputs.take(rows, 1)
        same = torch.equal(layer.params["weight"], due)
        where = f"{case.name}, {whole.site.kind} '{whole.site.prefix}'"
        require(same, f"{where}: rank {rank} of {size}, divided by {shard}puts, has no slice of the whole weight")
        found += 1
    return found


def _placed(subject: Subject, case: Case, site: LayerSite, ranks: Ranks, shard: Shard) -> Placed | None:
    """Return the share of a rank; None for layers that are not divided so."""
    roles, parts = Roles(ranks), dict(site.parts)
    if shard == "in":
        # Weights that are rounded while they load are rounded on each rank by themselves.
        rounds = subject.spec(QuantSpec).needs_request(str(case.config.get("quant_method", "none")))
        if site.kind != "linear" or len(parts) > 1 or rounds:
            return None
        return roles.linear(site.prefix, site.in_features, site.rows, shard, bias=site.bias)
    if site.kind != "linear":
        return roles.vocabulary(site.kind, site.prefix, site.rows, site.in_features, "out", bias=site.bias)
    cuts = roles.parts(site.prefix, parts, {}, "out")
    return roles.merged(site.prefix, site.in_features, cuts, bias=site.bias)


CHECKS = checks(ranks_read_slices_of_the_weight, on_device=True)
