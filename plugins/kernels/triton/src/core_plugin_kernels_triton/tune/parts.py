"""The tables that are tuned: where each is held, what may stand in it, and what is timed for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from core_plugin_kernels_triton.attention.tiles import tiles as attention_tiles
from core_plugin_kernels_triton.experts.tiles import tiles as expert_tiles
from core_plugin_kernels_triton.ops.tiles import tiles as op_tiles
from core_plugin_kernels_triton.products.tiles import tiles as product_tiles
from core_plugin_kernels_triton.tune import attention_cases, candidates, cases, expert_cases, product_cases

if TYPE_CHECKING:
    import torch

    from core_plugin_kernels_triton.tune.candidates import Candidates
    from core_plugin_kernels_triton.tune.cases import Call, Sizes


class Part(NamedTuple):
    """A table.

    Attributes:
        name: Of its file.
        tiles: Returns it for a device: kernel -> its sizes.
        candidates: Sizes to try.
        cases: Returns kernel -> calls whose time counts, of a model's sizes.
    """

    name: str
    tiles: Callable[[torch.device], dict[str, Mapping[str, Any]]]
    candidates: Candidates
    cases: Callable[[Sizes, torch.device], Mapping[str, Sequence[Call]]]


PARTS: Mapping[str, Part] = {
    one.name: one
    for one in (
        Part("ops", op_tiles, candidates.OPS, cases.cases),
        Part("products", product_tiles, candidates.PRODUCTS, product_cases.cases),
        Part("experts", expert_tiles, candidates.EXPERTS, expert_cases.cases),
        Part("attention", attention_tiles, candidates.ATTENTION, attention_cases.cases),
    )
}
"""In the order in which they are tuned."""
