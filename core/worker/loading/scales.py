"""Scales of a KV cache: numbers that a checkpoint may give for each attention layer, and 1 where it does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from core.api.errors import CheckpointError
from core.layers.params import ParamGroup

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.weights import WeightTensor
    from core.layers.attention import CachedAttention
    from core.layers.params import Parameterised, Params

KEY, VALUE = "k_scale", "v_scale"
_BOTH = "kv_scale"
_UNUSED = ("q_scale", "prob_scale")
"""Queries and weights are never rounded to 8 bits here."""

_ALIASES = {
    "k_proj.k_scale": KEY,
    "k_proj.output_scale": KEY,
    "v_proj.v_scale": VALUE,
    "v_proj.output_scale": VALUE,
    "q_proj.q_scale": "q_scale",
    "q_proj.output_scale": "q_scale",
}
"""Name below the attention module, as some writers of checkpoints have it -> what it is."""


class ScaleGroup(ParamGroup):
    """The scales of one attention layer; any of them may be absent.

    Args:
        module: Path of the attention module in the checkpoint, renames applied.
        rounded: Whether the cache is of a format that they are for.
        by_head: Whether the backend takes a scale for each head.
    """

    optional = True

    def __init__(self, module: str, attention: CachedAttention, *, rounded: bool, by_head: bool = False) -> None:
        super().__init__(module, self._of_heads)
        self._attention, self._rounded = attention, rounded
        self._heads = attention.kv_heads if by_head else 1
        for name in (KEY, VALUE, _BOTH, *_UNUSED):
            self.declare(name, (self._heads,), torch.float32)
        self.read_by(attention, self._settle)

    def allocate(self, device: torch.device) -> Params:
        """Return storage that says of every scale that the checkpoint has none."""
        return {name: torch.full(shape, math.nan) for name, (shape, _) in self.specs.items()}

    def invented(self, device: torch.device) -> list[tuple[Parameterised, Params]]:
        """Return the layer without scales of its own."""
        return self.finalize(self.allocate(device))

    def _of_heads(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the scale of each head, or the one of all. Raises `CheckpointError` CORE-M129 for other numbers."""
        count = math.prod(tensor.shape)
        if count not in (1, self._heads) and param not in _UNUSED:
            heads = "" if self._heads == 1 else f", or {self._heads}, one for each head"
            raise CheckpointError(
                "CORE-M129",
                f"the checkpoint tensor '{tensor.name}' has shape {tuple(tensor.shape)}: scales of a KV cache must be "
                f"one number per layer{heads}.",
                hint="Use a checkpoint whose kv_cache_scheme has the strategy 'tensor', or a backend with the "
                "feature head_scales.",
            )
        return tensor.dense(torch.float32).flatten()[: self._heads].expand(self._heads)

    def _settle(self, params: Params) -> Params:
        """Return both scales, 1 where none is given or what is given is no scale (some writers leave -1 or 0).

        Raises:
            CheckpointError: CORE-M144, the attention backend cannot use them.
        """
        both = params[_BOTH]
        found = {name: _scale(params[name], _scale(both, torch.ones(()))) for name in (KEY, VALUE)}
        if not self._rounded:
            return {name: torch.ones(()) for name in found}
        given = any(bool((one != 1.0).any()) for one in found.values())
        if given and not self._attention.takes_scales:
            raise CheckpointError(
                "CORE-M144",
                f"the checkpoint gives scales for the KV cache ('{self.prefix}.{KEY}'), which the attention backend "
                "cannot use.",
                hint="Choose another --attention-backend, or --kv-dtype with the dtype of the model.",
            )
        return found


def _scale(given: Tensor, otherwise: Tensor) -> Tensor:
    """Return one number for equal heads, else one for each; `otherwise` where any is no scale."""
    if not bool((given.isfinite() & (given > 0)).all()):
        return otherwise
    return given.flatten()[0] if bool((given == given.flatten()[0]).all()) else given


def scale_groups(
    module: str | None, attentions: Sequence[CachedAttention], *, rounded: bool, by_head: bool
) -> list[ScaleGroup]:
    """Return the scales of all layers that have some; arguments as in `ScaleGroup`, `module` with `{}` for a number."""
    if module is None:
        return []
    having = [one for one in attentions if one.has_scales]
    return [ScaleGroup(module.format(one.site.layer), one, rounded=rounded, by_head=by_head) for one in having]


def aliases(groups: Sequence[ScaleGroup]) -> dict[str, str]:
    """Return other names of the scales -> their own."""
    return {f"{group.prefix}.{other}": f"{group.prefix}.{name}" for group in groups for other, name in _ALIASES.items()}
