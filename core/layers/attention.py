"""Attention: one backend layer bound to its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.layers.params import Parameterised

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api.attention import AttentionLayer, AttentionSite, EncoderLayer
    from core.api.models import StepInputs
    from core.layers.params import Params


class AttentionModule(Parameterised):
    """Writes keys and values to the cache, then attends.

    Its parameters are the scales of its cache, which the backend's layer gets if it is a `TakesScales`.

    Attributes:
        site: Which layer this is, and its geometry.
        takes_scales: Whether scales other than 1 can be used.
        kv: The layer's cache; bound once by the worker, before the first call.
    """

    kv: Tensor

    def __init__(self, site: AttentionSite, layer: AttentionLayer) -> None:
        self.site = site
        self._write = layer.write_kv
        self._forward = layer.forward
        self._after_load: Callable[[], None] | None = getattr(layer, "after_load", None)
        self._use_scales: Callable[[float, float], None] | None = getattr(layer, "use_scales", None)
        self.takes_scales = self._use_scales is not None

    def bind(self, params: Params) -> None:
        """Use these scales from now on."""
        super().bind(params)
        if self._use_scales is not None:
            self._use_scales(float(params["k_scale"]), float(params["v_scale"]))

    def after_load(self) -> None:
        """Let the backend's layer act once weights are in place, if it wants to."""
        if self._after_load is not None:
            self._after_load()

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, step: StepInputs) -> Tensor:
        """Return `(tokens, heads * head_dim)`; shapes of the arguments as in `core.api.models.Attention`."""
        plan = step.plan
        self._write(k, v, self.kv, plan)
        return self._forward(q, self.kv, plan)


class EncoderModule:
    """Attends within the prompts of a step; nothing is kept.

    Attributes:
        site: Which layer this is, and its geometry.
    """

    def __init__(self, site: AttentionSite, layer: EncoderLayer) -> None:
        self.site = site
        self._forward = layer.forward

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, step: StepInputs) -> Tensor:
        """Return `(tokens, heads * head_dim)`; shapes of the arguments as in `core.api.models.Attention`."""
        return self._forward(q, k, v, step.plan)
