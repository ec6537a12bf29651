"""A model of transformers as a model of core: its own forward pass, with core's layers and paged attention.

All requests of a step are one text of batch size 1; only attention looks from one token to another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from core.api import WeightRules
from core.api.errors import CheckpointError
from core_plugin_transformers_bridge.attend import attending
from core_plugin_transformers_bridge.layers import take_over
from core_plugin_transformers_bridge.shape import shape
from core_plugin_transformers_bridge.skeleton import skeleton, stored, volatile, without
from core_plugin_transformers_bridge.trace import Site, Trace

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core.api.layers import Attention, Parameter


class Bridge:
    """A causal language model of transformers."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        self._model = model = skeleton(config)
        self._name = type(model).__name__
        names = {id(one): name for name, one in model.named_parameters()}
        self._volatile = volatile(model)
        take_over(model, build, _tied(model))
        trace = Trace(names)
        hidden = trace.run(self._hidden, self._name)
        trace.run(lambda ids, positions: self._logits(hidden), self._name)
        self._attentions = self._built(trace.sites, build, config)
        sinks = {site.sinks for site in trace.sites}
        self._parameters: list[tuple[nn.Module, str, Parameter]] = [
            (module, attribute, build.parameter(name, size))
            for name, module, attribute, size in stored(model)
            if name not in sinks
        ]
        self._device: torch.device | None = None

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Leave out stored rotary frequencies; checkpoints of the model without its head have no prefix."""
        model = skeleton(config)
        root = model.base_model_prefix
        inside = [name for name, _ in model.base_model.named_children()] if root in model._modules else []
        return WeightRules(
            rename=tuple((f"{name}.", f"{root}.{name}.") for name in inside if name not in model._modules),
            skip=("*.rotary_emb.inv_freq", "*.masked_bias"),
        )

    def after_load(self) -> None:
        """Put the checkpoint's values where the modules read them."""
        for module, attribute, parameter in self._parameters:
            value = parameter()
            if attribute in module._parameters:
                module._parameters[attribute] = nn.Parameter(value, requires_grad=False)
            else:
                module._buffers[attribute] = value
            self._place(value.device)

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        self._place(step.token_ids.device)
        with attending(partial(self._attend, step)):
            return self._hidden(step.token_ids[None], step.positions[None])[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """Project `(rows, D)` to `(rows, vocab)`."""
        return self._logits(hidden[None])[0]

    def _attend(
        self, step: StepInputs, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
    ) -> Tensor:
        size = value.shape[-1]
        # The cache has values of the size of keys; zeros change nothing of the rest.
        value = functional.pad(value, (0, key.shape[-1] - size))
        q, k, v = (one[0].transpose(0, 1).contiguous() for one in (query, key, value))
        out = self._attentions[module](q, k, v, step)
        return out.view(1, *q.shape)[..., :size]

    def _hidden(self, ids: Tensor, positions: Tensor) -> Tensor:
        out = self._model.base_model(input_ids=ids, position_ids=positions, use_cache=False)
        self._given = _Given(type(out))
        hidden: Tensor = out.last_hidden_state
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        """Run what the model does behind its last layer, `(1, rows, D) -> (1, rows, vocab)`."""
        with without(self._model, self._model.base_model_prefix, self._given):
            logits: Tensor = self._model(inputs_embeds=hidden, use_cache=False).logits
        return logits

    def _place(self, device: torch.device) -> None:
        if self._device is None:
            for module, attribute, value in self._volatile:
                module._buffers[attribute] = value.to(device)
            self._device = device

    def _built(self, sites: list[Site], build: LayerBuilder, config: Mapping[str, Any]) -> dict[nn.Module, Attention]:
        """Return the attention of each module that attends."""
        stated = shape(dict(config))
        if sorted(site.layer for site in sites) != list(range(stated.num_layers)):
            text = f"{self._name} attends {len(sites)} times, and its configuration names {stated.num_layers} layers."
            raise CheckpointError("CORE-M212", text)
        built = {}
        paths = {module: path for path, module in self._model.named_modules()}
        for site in sites:
            further = sorted(site.features - stated.features)
            if site.head_dim != stated.head_dim or further:
                what = ", ".join(further) or f"heads of {site.head_dim}"
                raise CheckpointError("CORE-M212", f"layer {site.layer} of {self._name} has {what}, unforeseen.")
            if build.heads(site.heads, site.kv_heads).heads != site.heads:
                raise CheckpointError("CORE-M213", "a bridged model runs on one rank.", hint="Use one device.")
            built[site.module] = build.attention(
                site.layer,
                num_heads=site.heads,
                num_kv_heads=site.kv_heads,
                head_dim=site.head_dim,
                scale=site.scale,
                window=site.window,
                softcap=site.softcap,
                sinks=site.sinks,
                prefix=paths[site.module],
            )
        return built


class _Given(nn.Module):
    """Stands in for the layers: the hidden states that are handed in are what they give, as the `kind` they give."""

    def __init__(self, kind: Callable[..., Any]) -> None:
        super().__init__()
        self._kind = kind

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> Any:
        """Return the hidden states."""
        return self._kind(last_hidden_state=inputs_embeds)


def _tied(model: Any) -> bool:
    """Return whether the output projection has the token embedding's weights.

    Raises:
        CheckpointError: CORE-M212, other weights are shared as well.
    """
    head = next((path for path, one in model.named_modules() if one is model.get_output_embeddings()), None)
    shared = model.all_tied_weights_keys
    odd = sorted(name for name in shared if name != f"{head}.weight")
    if head is None or odd:
        raise CheckpointError("CORE-M212", f"{type(model).__name__} shares {', '.join(odd) or 'no output projection'}.")
    return bool(shared)
