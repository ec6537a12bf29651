"""The builder that hands layers to models and records what fills them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from core.api.attention import AttentionSite
from core.api.errors import CheckpointError, PluginError
from core.api.quantization import LayerSite
from core.layers.attention import AttentionModule, EncoderModule, sinks_group
from core.layers.guard import LayerContext, Owners, blamed
from core.layers.kernels import KernelTable
from core.layers.linear import Embedding, Linear, QuantLayer
from core.layers.norm import LayerNorm, Norm, RMSNorm, norm_group
from core.layers.params import ParamGroup
from core.layers.rope import RotaryEmbedding
from core.ops import relu, silu
from core.plugins.handed import ATTENTION_LAYER, ENCODER_LAYER, QUANT_LAYER, Handed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api import models as api
    from core.api.attention import AttentionBackend
    from core.api.quantization import LayerQuant, QuantScheme
    from core.api.rotary import RopeConfig
    from core.plugins.contracts import Contract

T = TypeVar("T")
S = TypeVar("S", LayerSite, AttentionSite)
N = TypeVar("N", bound=Norm)

_HOOKS = "hook plugins"
_GATED = {"silu": "silu_and_mul", "gelu": "gelu_and_mul", "gelu_pytorch_tanh": "gelu_tanh_and_mul"}
_PLAIN: Mapping[str, api.Activation | str] = {
    "relu": relu,
    "silu": silu,
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
"""Name -> the function, or the operation that kernels may implement."""


class Builder:
    """A `LayerBuilder` for one device.

    Args:
        scheme: The quantization method, which decides how linears and embeddings are stored.
        max_positions: Longest context that will be used, in tokens; None leaves it to each model's own.
        kernels: Chooses the forms of operations; None takes the reference forms.
        options: The model plugin's own.
        wrap: `(site, layer) -> layer`, lets plugins wrap what is handed out for a place; None if no plugin does.
        owners: Whose the model, the backend and the scheme are, for errors.

    Attributes:
        attentions: Attention layers in the order they were built.
        groups: Parameters of all layers.
        ropes: Rotary embeddings, each with its configuration.
        tied: Checkpoint names that are left out because their layer shares another's parameters.
    """

    def __init__(
        self,
        scheme: QuantScheme,
        backend: AttentionBackend,
        *,
        device: torch.device,
        dtype: torch.dtype,
        max_positions: int | None = None,
        kernels: KernelTable | None = None,
        wrap: Callable[[Any, Any], Any] | None = None,
        owners: Owners | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.options = options or {}
        self.attentions: list[AttentionModule] = []
        self.groups: list[ParamGroup] = []
        self.ropes: list[tuple[RopeConfig, RotaryEmbedding]] = []
        self.tied: set[str] = set()
        self._scheme = scheme
        self._backend = backend
        self._context = LayerContext(device, dtype, owners or Owners())
        self._max_positions = max_positions
        self._kernels = kernels or KernelTable(device.type, str(dtype).removeprefix("torch."))
        self._wrap = wrap
        self._handed = {owner: Handed(owner) for owner in (*self._context.owners, _HOOKS)}

    def embedding(self, vocab_size: int, hidden_size: int, prefix: str) -> Embedding:
        """Return the token embedding."""
        return Embedding(*self._store("embedding", prefix, hidden_size, [("", vocab_size)]))

    def lm_head(self, vocab_size: int, hidden_size: int, prefix: str, tied_to: api.Embedding | None = None) -> Linear:
        """Return the output projection; tied, it reads the embedding's stored parameters in a form of its own."""
        parts = [("", vocab_size)]
        if tied_to is None:
            return Linear(*self._store("lm_head", prefix, hidden_size, parts))
        if not isinstance(tied_to, QuantLayer):
            raise TypeError(f"lm_head {prefix} can be tied to an embedding of this builder only, got {tied_to!r}")
        self.tied.add(f"{prefix}.weight")
        # The site carries the embedding's prefix: that is where the weights are in the checkpoint.
        site = LayerSite("lm_head", tied_to.group.prefix, hidden_size, parts)
        return Linear(site, self._quant(site), tied_to.group, self._context)

    def linear(self, in_features: int, out_features: int, prefix: str, *, bias: bool = False) -> Linear:
        """Return a linear layer filled from `<prefix>.weight` (and `.bias`)."""
        return Linear(*self._store("linear", prefix, in_features, [("", out_features)], bias))

    def merged_linear(self, in_features: int, parts: Mapping[str, int], prefix: str, *, bias: bool = False) -> Linear:
        """Return one linear layer for several checkpoint tensors, stacked in the order of `parts`."""
        return Linear(*self._store("linear", prefix, in_features, list(parts.items()), bias))

    def rms_norm(self, size: int, eps: float, prefix: str) -> RMSNorm:
        """Return an RMS norm filled from `<prefix>.weight`."""
        return self._norm(RMSNorm, "rms_norm", size, eps, prefix)

    def layer_norm(self, size: int, eps: float, prefix: str, *, bias: bool = True) -> LayerNorm:
        """Return a layer norm filled from `<prefix>.weight` (and `.bias`)."""
        return self._norm(LayerNorm, "layer_norm", size, eps, prefix, bias=bias)

    def rope(self, config: RopeConfig) -> RotaryEmbedding:
        """Return the rotary embedding of `config`; equal configurations share one table.

        Raises:
            CheckpointError: CORE-M125, core does not compute its scaling rule.
        """
        for known, rope in self.ropes:
            if known == config:
                return rope
        positions = self._max_positions or config.context
        rotate = self._kernels.pick("rotary", head_dim=config.head_dim, rotary_dim=config.rotary_dim)
        rope = RotaryEmbedding(config, positions, self._context, rotate=rotate, owner=self._kernels.owner(rotate))
        self.ropes.append((config, rope))
        return rope

    def gated_activation(self, name: str) -> api.Activation:
        """Return `act(gate) * up`. Raises `CheckpointError` CORE-M127 for a name that is not known."""
        return self._kernels.pick(_named(_GATED, "gated activation", name))

    def activation(self, name: str) -> api.Activation:
        """Return `act(x)`. Raises `CheckpointError` CORE-M127 for a name that is not known."""
        form = _named(_PLAIN, "activation", name)
        return self._kernels.pick(form) if isinstance(form, str) else form

    def attention(
        self,
        layer: int,
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
        sinks: str | None = None,
        chunk: int | None = None,
        value_dim: int | None = None,
    ) -> AttentionModule:
        """Return the attention of KV layer `layer`.

        Raises:
            PluginError: CORE-P230, the backend's layer takes no sinks, although it was chosen for such a model.
        """
        site = AttentionSite(
            layer,
            num_heads,
            num_kv_heads,
            head_dim,
            scale,
            window,
            softcap,
            sinks=sinks is not None,
            chunk=chunk,
            value_dim=value_dim,
        )
        backed = self._ask(self._context.owners.attention, "layer()", ATTENTION_LAYER, self._backend.layer, site)
        module = AttentionModule(site, backed, self._context)
        if sinks is not None:
            self.groups.append(sinks_group(backed, site, sinks, self._context.owners.attention))
        self.attentions.append(module)
        return module

    def encoder_attention(
        self,
        layer: int,
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
        bias: Callable[[int], Tensor] | None = None,
    ) -> EncoderModule:
        """Return attention within the prompts of a step.

        Raises:
            PluginError: CORE-P110, the attention backend has none, although it was chosen for such a model.
        """
        site = AttentionSite(layer, num_heads, num_kv_heads, head_dim, scale, window, bias=bias)
        encoder = getattr(self._backend, "encoder", None)
        if encoder is None:
            kind = type(self._backend).__name__
            raise PluginError(
                "CORE-P110",
                f"the model needs bidirectional attention, which {kind} lacks.",
                hint="The model's shape must name 'bidirectional' among its features.",
            )
        backed = self._ask(self._context.owners.attention, "encoder()", ENCODER_LAYER, encoder, site)
        return EncoderModule(site, backed, self._context)

    def _store(
        self,
        kind: Literal["linear", "embedding", "lm_head"],
        prefix: str,
        in_features: int,
        parts: Sequence[tuple[str, int]],
        bias: bool = False,
    ) -> tuple[LayerSite, LayerQuant, ParamGroup, LayerContext]:
        site = LayerSite(kind, prefix, in_features, parts, bias)
        quant = self._quant(site)
        group = ParamGroup(prefix, quant.decode)
        with blamed(self._context.owners.quantization, f"declare() of {kind} '{prefix}'"):
            quant.declare(group)
        self.groups.append(group)
        return site, quant, group, self._context

    def _norm(self, kind: type[N], op: str, size: int, eps: float, prefix: str, *, bias: bool = False) -> N:
        plain, add = self._kernels.pick(op, size=size), self._kernels.pick(f"add_{op}", size=size)
        place = self._context.place(f"{op} '{prefix}'", self._kernels.owner(plain, add))
        layer = kind(place, self._context.dtype, size, eps, plain, add)
        self.groups.append(norm_group(layer, size, prefix, self._context.dtype, bias=bias))
        return layer

    def _quant(self, site: LayerSite) -> LayerQuant:
        return self._ask(self._context.owners.quantization, "for_site()", QUANT_LAYER, self._scheme.for_site, site)

    def _ask(self, owner: str, what: str, contract: Contract, function: Callable[[S], T], site: S) -> T:
        """Return what a plugin hands out for a place, or what hooks make of it; both fit the contract."""
        layer = self._handed[owner].ask(what, contract, function, site)
        if self._wrap is None:
            return layer
        wrapped: T = self._wrap(site, layer)
        return self._handed[_HOOKS].fit("core_layer", wrapped, contract)


def _named(known: Mapping[str, T], kind: str, name: str) -> T:
    if name not in known:
        supported = ", ".join(sorted(known))
        raise CheckpointError("CORE-M127", f"{kind} '{name}' is not supported; supported: {supported}.")
    return known[name]
