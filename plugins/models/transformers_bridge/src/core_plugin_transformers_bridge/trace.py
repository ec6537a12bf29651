"""One pass of a model on the meta device: which of its modules attend, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from core.api.errors import CheckpointError, CoreError
from core_plugin_transformers_bridge.attend import attending

if TYPE_CHECKING:
    from torch import Tensor, nn

_HARMLESS = frozenset({"dropout", "position_ids", "use_cache", "cache_position", "is_causal", "layer_idx"})
"""Arguments that models pass to attention beside what core reads, and that change nothing of what it computes here."""


class Site(NamedTuple):
    """How one module attends; the attributes are what `LayerBuilder.attention` takes."""

    module: nn.Module
    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None
    softcap: float | None
    sinks: str | None

    @property
    def features(self) -> frozenset[str]:
        """The attention features that it needs."""
        wanted = {
            "sliding_window": self.window,
            "softcap": self.softcap,
            "sinks": self.sinks,
        }
        return frozenset(name for name, value in wanted.items() if value is not None)


class Trace:
    """Notes who attends while a model runs on the meta device.

    Args:
        names: Names of the model's parameters, by the parameters' ids.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self.sites: list[Site] = []
        self._names = names

    def run(self, forward: Callable[[Tensor, Tensor], Tensor], what: str) -> Tensor:
        """Run a forward pass `(token_ids, positions)`, both `(1, 2)` int64, and return its result.

        Raises:
            CheckpointError: CORE-M212, it cannot be run, or attends in a way that core does not.
        """
        ids = torch.zeros(1, 2, dtype=torch.int64, device="meta")
        try:
            with torch.no_grad(), attending(self._note):
                return forward(ids, ids)
        except CoreError:
            raise
        except Exception as error:
            text = f"{what} cannot be bridged: without its values it raises {type(error).__name__}: {error}"
            raise CheckpointError("CORE-M212", " ".join(text.split())) from error

    def _note(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        **further: Any,
    ) -> Tensor:
        layer = getattr(module, "layer_idx", None)
        odd = sorted(name for name, given in further.items() if name not in _HARMLESS and given not in (None, False))
        if mask is not None:
            odd.append("a mask of its own")
        if further.get("is_causal") is False or getattr(module, "is_causal", True) is False:
            odd.append("what follows a token")
        if len(query) != 1 or query.shape[2] != key.shape[2]:
            odd.append("keys of other tokens than the step's")
        if odd:
            raise _refused(module, f"attends with {', '.join(odd)}")
        if not isinstance(layer, int) or layer in {site.layer for site in self.sites}:
            raise _refused(module, "is no layer of its own (layer_idx)")
        sinks = None if s_aux is None else self._names.get(id(s_aux))
        if s_aux is not None and sinks is None:
            raise _refused(module, "computes its sinks")
        head_dim, size = query.shape[-1], value.shape[-1]
        scale = head_dim**-0.5 if scaling is None else float(scaling)
        heads, kv_heads = query.shape[1], key.shape[1]
        if size > head_dim:
            raise _refused(module, "has values larger than its keys")
        self.sites.append(Site(module, layer, heads, kv_heads, head_dim, scale, sliding_window, softcap or None, sinks))
        return query.new_empty(1, query.shape[2], heads, size)


def _refused(module: nn.Module, why: str) -> CheckpointError:
    return CheckpointError("CORE-M212", f"{type(module).__name__} cannot be bridged: it {why}.")
