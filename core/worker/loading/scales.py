"""Scales of a KV cache: numbers that a checkpoint may give for each attention layer, and 1 where it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
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
_QUERY, _WEIGHTS = "q_scale", "prob_scale"
_UNUSED = (_QUERY, _WEIGHTS)
"""Queries and weights are never rounded to 8 bits here."""

_UNSET = -1.0
"""What writers have for a scale before it is calibrated, and leave where it never was."""

_HOLDERS = ("attn", "attn_mqa", "mla_attn", "mla_attn.mla_attn")
"""Modules that engines have inside of an attention for what reads the cache."""

_FUSED = ("qkv_proj", "qkqkv_proj", "query_key_value", "Wqkv", "wqkv", "c_attn", "W_pack")
"""Modules that make queries, keys and values at once."""

_ALIASES = {
    **{f"{holder}.{name}": name for holder in _HOLDERS for name in (KEY, VALUE, _BOTH, *_UNUSED)},
    **{f"{module}.{name}": name for module in _FUSED for name in (KEY, VALUE, _QUERY)},
    **{f"{module}.output_scale": _BOTH for module in _FUSED},
    **{
        f"{letter}{ending}": f"{letter}_scale"
        for letter in "qkv"
        for ending in (f"_proj.{letter}_scale", "_proj.output_scale", "_cache.scale", "_fake_quantizer.qscale_act")
    },
    "q.scale": _QUERY,
    "prob_output_scale": _WEIGHTS,
}
"""Name below the attention module, as some writers of checkpoints have it -> what it is."""


class ScaleGroup(ParamGroup):
    """The scales of one attention module; any of them may be absent.

    Args:
        module: Its path in the checkpoint, renames applied.
        attentions: The layers that keep something by it: several, where it runs more than once in a step; none, where
            it reads what another keeps.
        rounded: Whether the caches are of a format that they are for.
        by_head: Whether the backend takes a scale for each head.
    """

    optional = True

    def __init__(
        self, module: str, attentions: Sequence[CachedAttention], *, rounded: bool, by_head: bool = False
    ) -> None:
        super().__init__(module, self._of_heads)
        self._used = rounded and bool(attentions)
        self._heads = attentions[0].kv_heads if by_head and attentions else 1
        for name in (KEY, VALUE, _BOTH, *_UNUSED):
            self.declare(name, (self._heads,), torch.float32)
        for attention in attentions:
            self.read_by(attention, partial(self._settle, attention))

    def allocate(self, device: torch.device) -> Params:
        """Return storage that says of every scale that the checkpoint has none."""
        return {name: torch.full(shape, _UNSET) for name, (shape, _) in self.specs.items()}

    def invented(self, device: torch.device) -> list[tuple[Parameterised, Params]]:
        """Return the layers without scales of their own."""
        return self.finalize(self.allocate(device))

    def _of_heads(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the scale of each head, or the one of all.

        Raises:
            CheckpointError: CORE-M129, these are other numbers, or no scales.
        """
        if not self._used or param in _UNUSED:
            return torch.full((self._heads,), _UNSET)
        if math.prod(tensor.shape) not in (1, self._heads):
            heads = "" if self._heads == 1 else f", or {self._heads}, one for each head"
            raise CheckpointError(
                "CORE-M129",
                f"the checkpoint tensor '{tensor.name}' has shape {tuple(tensor.shape)}: scales of a KV cache must be "
                f"one number per layer{heads}.",
                hint="Use a checkpoint whose kv_cache_scheme has the strategy 'tensor', or a backend with the "
                "feature head_scales.",
            )
        found = tensor.dense(torch.float32).flatten()
        if not bool((found.isfinite() & (found > 0)).all() | (found == _UNSET).all()):
            raise CheckpointError(
                "CORE-M129",
                f"the checkpoint tensor '{tensor.name}' holds {_listed(found)}: a scale of a KV cache must be a "
                "positive number.",
                hint="The checkpoint is damaged or was not calibrated: fetch it again, or set --kv-dtype to the dtype "
                "of the model.",
            )
        return found.expand(self._heads)

    def _settle(self, attention: CachedAttention, params: Params) -> Params:
        """Return both scales of a layer, 1 where none is given.

        Raises:
            CheckpointError: CORE-M144, the attention backend cannot use them.
        """
        both = _scale(params[_BOTH], torch.ones(()))
        found = {name: _scale(params[name], both) for name in (KEY, VALUE)}
        if not attention.keeps_values:
            found[VALUE] = found[KEY]
        given = any(bool((one != 1.0).any()) for one in found.values())
        if given and not attention.takes_scales:
            raise CheckpointError(
                "CORE-M144",
                f"the checkpoint gives scales for the KV cache ('{self.prefix}.{KEY}'), which the attention backend "
                "cannot use.",
                hint="Choose another --attention-backend, or --kv-dtype with the dtype of the model.",
            )
        return found


def _scale(given: Tensor, otherwise: Tensor) -> Tensor:
    """Return one number for equal heads, else one for each; `otherwise` where none is given."""
    if bool((given == _UNSET).all()):
        return otherwise
    return given.flatten()[0] if bool((given == given.flatten()[0]).all()) else given


def _listed(values: Tensor) -> str:
    return ", ".join(f"{value:g}" for value in values.tolist())


def scale_groups(modules: Mapping[str, Sequence[CachedAttention]], *, rounded: bool, by_head: bool) -> list[ScaleGroup]:
    """Return the scales of all modules that may have some, with the layers of each; arguments as of `ScaleGroup`."""
    return [ScaleGroup(module, layers, rounded=rounded, by_head=by_head) for module, layers in modules.items()]


def aliases(groups: Sequence[ScaleGroup]) -> dict[str, str]:
    """Return other names of the scales -> their own."""
    return {f"{group.prefix}.{other}": f"{group.prefix}.{name}" for group in groups for other, name in _ALIASES.items()}
