"""The builder that hands layers to models and records what fills them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import torch

from core.api.attention import AttentionSite, CompressedSite, LatentSite, PickSite
from core.api.errors import CheckpointError, PluginError
from core.api.participants import TapPlace
from core.api.products import ProductPlace
from core.api.quantization import ROUTER, LayerSite
from core.api.ranks import Ranks
from core.layers.attention import AttentionModule, CachedAttention, EncoderModule, shared_attention, sinks_group
from core.layers.compressed import CompressedModule, require_compressed
from core.layers.cuts import Cut, Cuts, Joined
from core.layers.embedding import ScaledEmbedding
from core.layers.experts import Experts, Router, TableRouter
from core.layers.guard import LayerContext, Owners, blamed
from core.layers.kernels import KernelTable
from core.layers.latent import LatentModule, UpProjection, UpReader, require_latent
from core.layers.linear import BlockLinear, DividedEmbedding, Embedding, Linear, ProductLayer, ReducedLinear
from core.layers.norm import DividedRMSNorm, LayerNorm, Norm, RMSNorm, norm_group
from core.layers.operations import Operation, WeightsLayer
from core.layers.parameter import Parameter, PositionTable, parameter_group
from core.layers.picks import PickerModule, require_picks, require_takes_picks
from core.layers.roles import Fused, Placed, Roles, whole
from core.layers.rope import RotaryEmbedding
from core.layers.states import StateMemory
from core.layers.taps import Taps
from core.layers.weights import BIAS, WeightGroup
from core.ops import quick_gelu, relu, relu_squared, sigmoid, silu, tanh
from core.ops.activation import Gated
from core.plugins.handed import ATTENTION_LAYER, COMPRESSED_LAYER, ENCODER_LAYER, LATENT_LAYER, PICKER, Handed

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import layers as api
    from core.api.attention import AttentionBackend
    from core.api.experts import Routing
    from core.api.kinds import Contract
    from core.api.quantization import Format
    from core.api.rotary import RopeConfig
    from core.layers.linear import AllReduce
    from core.layers.params import Group

T = TypeVar("T")
S = TypeVar("S", LayerSite, AttentionSite, LatentSite, PickSite, CompressedSite)
N = TypeVar("N", bound=Norm)

_HOOKS = "hook plugins"
_GATED = {
    "silu": "silu_and_mul",
    "gelu": "gelu_and_mul",
    "gelu_fast": "gelu_tanh_and_mul",
    "gelu_new": "gelu_tanh_and_mul",
    "gelu_pytorch_tanh": "gelu_tanh_and_mul",
}
_PLAIN: Mapping[str, api.Activation | str] = {
    "relu": relu,
    "relu2": relu_squared,
    "silu": silu,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "quick_gelu": quick_gelu,
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
"""Name -> the function, or the operation that kernels may implement."""


class Builder:
    """A `LayerBuilder` for one device, and one rank.

    Args:
        form: The quantization method, which reads how linears and embeddings are stored.
        method: How the checkpoint says that it stores weights.
        max_positions: Longest context that will be used, in tokens; None leaves it to each model's own.
        kernels: Chooses the forms of operations; None takes the reference forms.
        options: The model plugin's own.
        wrap: `(site, layer) -> layer`, lets plugins wrap what is handed out for a place; None if no plugin does.
        owners: Whose the model, the backend and the method are, for errors.
        ranks: Which rank of how many this is.
        all_reduce: Sums a tensor over the ranks. None: layers return this rank's addend of what ranks sum up.
        taps: Keeps what layers leave for participants; None if nobody reads anything.
        rotates: Attention layers of the backend are `StoresRotated`.

    Attributes:
        attentions: Attention layers, and what else keeps something of each token, in the order they were built.
        scaled: Module path -> the attention layers of it, for whose caches checkpoints may have scales. None of them
            where the module reads the cache of another.
        groups: Parameters of all layers.
        ropes: Rotary embeddings, each with its configuration.
        position_tables: Further tables of values by position.
        states: Memory for recurrent states, in the order in which it was asked for.
        left_out: Parameter names that the checkpoint may have and this rank does not need: their layer shares
            another's parameters, or another rank adds the bias or has the block, or the entry of a stack.
    """

    def __init__(
        self,
        form: Format,
        backend: AttentionBackend,
        *,
        method: str = "none",
        device: torch.device,
        dtype: torch.dtype,
        max_positions: int | None = None,
        kernels: KernelTable | None = None,
        wrap: Callable[[Any, Any], Any] | None = None,
        owners: Owners | None = None,
        options: Mapping[str, Any] | None = None,
        ranks: Ranks | None = None,
        all_reduce: AllReduce | None = None,
        taps: Taps | None = None,
        rotates: bool = False,
    ) -> None:
        self.options = options or {}
        self.attentions: list[CachedAttention] = []
        self.scaled: dict[str, list[CachedAttention]] = {}
        self.groups: list[Group] = []
        self.ropes: list[tuple[RopeConfig, RotaryEmbedding]] = []
        self.position_tables: list[PositionTable] = []
        self.states: list[StateMemory] = []
        self.left_out: set[str] = set()
        self._roles = Roles(ranks or Ranks())
        self._all_reduce = all_reduce
        self._taps = taps or Taps()
        self._form, self._method = form, method
        self._backend, self._rotates = backend, rotates
        self._context = LayerContext(device, dtype, owners or Owners())
        self._max_positions = max_positions
        self._kernels = kernels or KernelTable(device.type, str(dtype).removeprefix("torch."))
        self._wrap = wrap
        self._handed = {owner: Handed(owner) for owner in (*self._context.owners, _HOOKS)}

    def embedding(
        self,
        vocab_size: int,
        hidden_size: int,
        prefix: str,
        *,
        scale: float = 1.0,
        shard: Literal["out"] | None = "out",
    ) -> Embedding | ScaledEmbedding:
        """Return the token embedding, with every looked-up row multiplied by `scale`."""
        placed = self._roles.vocabulary("embedding", prefix, vocab_size, hidden_size, shard)
        group = self._store(placed, op="lookup")
        (rows,) = placed.cuts.outputs
        if rows.complete:
            rows_of = Embedding(placed.site, group, self._context)
        else:
            rows_of = DividedEmbedding(placed.site, group, self._context, rows.start, self._all_reduce)
        return rows_of if scale == 1.0 else ScaledEmbedding(rows_of, self._context.dtype, scale)

    def lm_head(
        self,
        vocab_size: int,
        hidden_size: int,
        prefix: str,
        tied_to: api.Embedding | None = None,
        *,
        bias: bool = False,
    ) -> Linear:
        """Return the output projection; tied, it reads the embedding's stored parameters in a form of its own."""
        placed = self._roles.vocabulary("lm_head", prefix, vocab_size, hidden_size, "out", bias=bias)
        if tied_to is None:
            return Linear(placed.site, self._store(placed, op="lookup"), self._context)
        if not isinstance(tied_to, (ProductLayer, ScaledEmbedding)):
            raise TypeError(f"lm_head {prefix} can be tied to an embedding of this builder only, got {tied_to!r}")
        if bias or tied_to.group.cuts != placed.cuts:
            raise ValueError(f"lm_head {prefix} has a bias or other rows than the embedding that it is tied to")
        self.left_out.add(f"{prefix}.weight")
        # The site carries the embedding's prefix: that is where the weights are in the checkpoint.
        site = replace(placed.site, prefix=tied_to.group.prefix)
        return Linear(site, tied_to.group, self._context)

    def heads(self, num_heads: int, num_kv_heads: int) -> api.Heads:
        """Return the heads of this rank. Raises `CheckpointError` CORE-M183."""
        return self._roles.heads(num_heads, num_kv_heads)

    def linear(
        self,
        in_features: int,
        out_features: int,
        prefix: str,
        *,
        bias: bool = False,
        shard: api.Shard | None = None,
    ) -> Linear:
        """Return a linear layer filled from `<prefix>.weight` (and `.bias`). Raises `CheckpointError` CORE-M184."""
        placed = self._roles.linear(prefix, in_features, out_features, shard, bias=bias)
        if bias and not placed.site.bias:
            self.left_out.add(f"{prefix}.bias")
        group = self._store(placed)
        if placed.cuts.inputs.complete or self._all_reduce is None:
            return Linear(placed.site, group, self._context)
        return ReducedLinear(placed.site, group, self._context, self._all_reduce)

    def merged_linear(
        self,
        in_features: int,
        parts: Mapping[str, int],
        prefix: str,
        *,
        bias: bool = False,
        shard: Literal["out"] | None = None,
        units: Mapping[str, int] | None = None,
        fused: str | None = None,
        split: Literal["halves", "interleaved"] = "halves",
    ) -> Linear:
        """Return one linear layer for several parts, stacked in the order of `parts`."""
        cuts = self._roles.parts(prefix, parts, units or {}, shard)
        stored = None if fused is None else Fused(fused, split, units or {})
        placed = self._roles.merged(prefix, in_features, cuts, bias=bias, fused=stored)
        return Linear(placed.site, self._store(placed), self._context)

    def block_linear(
        self,
        in_features: int,
        parts: Mapping[str, int],
        prefix: str,
        blocks: int,
        *,
        bias: bool = False,
        shard: Literal["out"] | None = None,
    ) -> BlockLinear:
        """Return a block-diagonal linear layer. Raises `CheckpointError` CORE-M184, ranks cannot divide its blocks."""
        if in_features % blocks or any(size % blocks for size in parts.values()):
            raise ValueError(f"{in_features} inputs and {dict(parts)} outputs of '{prefix}' are not {blocks} blocks")
        share = Cut.all(blocks) if shard is None else self._roles.share(blocks, f"blocks of '{prefix}'")
        inputs, sizes = in_features // blocks, {name: size // blocks for name, size in parts.items()}
        own = range(share.start, share.start + share.count)
        for block in set(range(blocks)) - set(own):
            site = LayerSite("linear", f"{prefix}.{block}", inputs, list(sizes.items()), bias)
            self.left_out.update(self._stored_names(site))
        layers = [self.merged_linear(inputs, sizes, f"{prefix}.{block}", bias=bias) for block in own]
        return BlockLinear(prefix, layers, self._context)

    def rms_norm(
        self,
        size: int,
        eps: float,
        prefix: str,
        *,
        offset: float = 0.0,
        shard: Literal["out"] | None = None,
        unit: int | None = None,
        weight: bool = True,
    ) -> RMSNorm:
        """Return an RMS norm filled from `<prefix>.weight`, to which `offset` is added; or one without a weight.

        Raises:
            CheckpointError: CORE-M184, ranks cannot divide it; CORE-M186, they do, and nothing sums over them.
        """
        share = Cut.all(size) if shard is None else self._roles.share(size, f"numbers of '{prefix}'", unit)
        if share.complete:
            return self._norm(RMSNorm, "rms_norm", size, eps, prefix, offset=offset, weight=weight)
        if self._all_reduce is None:
            raise CheckpointError("CORE-M186", f"norm '{prefix}' needs the sum over the ranks that divide it.")
        place = self._context.place(f"rms_norm '{prefix}'", "core's own form")
        copies = share.size * self._roles.ranks.size // size
        layer = DividedRMSNorm(place, self._context.dtype, share, eps, copies, self._all_reduce)
        self._fill_norm(layer, share, prefix, offset=offset, weight=weight)
        return layer

    def layer_norm(
        self,
        size: int,
        eps: float,
        prefix: str,
        *,
        bias: bool = True,
        offset: float = 0.0,
        weight: bool = True,
    ) -> LayerNorm:
        """Return a layer norm filled from `<prefix>.weight` (and `.bias`); or one without either."""
        return self._norm(LayerNorm, "layer_norm", size, eps, prefix, bias=bias, offset=offset, weight=weight)

    def parameter(
        self,
        name: str | Sequence[str],
        shape: Sequence[int],
        *,
        shard: Literal["out"] | None = None,
        unit: int | None = None,
        axis: int = 0,
        parts: Sequence[tuple[int, int]] = (),
        read: Callable[[Tensor], Tensor] | None = None,
        dtype: Literal["compute", "float32"] = "compute",
    ) -> Parameter:
        """Return a tensor of the checkpoint, or several that are stacked. Raises `CheckpointError` CORE-M184."""
        names = [name] if isinstance(name, str) else list(name)
        rows, what = shape[axis] if shape else 1, f"entries of '{names[0]}'"
        if parts and sum(size for size, _ in parts) != rows:
            raise ValueError(f"the parts of '{names[0]}' are not {rows} entries")
        share: Cut | Joined
        if shard is None:
            share = Cut.all(rows)
        elif parts:
            share = Joined(tuple(self._roles.share(size, what, each) for size, each in parts))
        else:
            share = self._roles.share(rows, what, unit)
        layer = Parameter()
        stacked = not isinstance(name, str)
        kept = self._context.dtype if dtype == "compute" else torch.float32
        group = parameter_group(layer, names, tuple(shape), share, kept, axis=axis, stacked=stacked, read=read)
        self.left_out.update(set(names) - group.targets().keys())  # what other ranks stack
        self.groups.append(group)
        return layer

    def state(
        self, name: str, shape: Sequence[int], *, dtype: Literal["compute", "float32"] = "float32"
    ) -> StateMemory:
        """Return memory for one state of every request."""
        if any(name == known.name for known in self.states):
            raise ValueError(f"there is a state '{name}' already")
        memory = StateMemory(name, shape, torch.float32 if dtype == "float32" else self._context.dtype)
        self.states.append(memory)
        return memory

    def tap(
        self, name: str, prefix: str, width: int, *, size: int = 0, dtype: Literal["compute", "int32"] = "compute"
    ) -> Callable[[Tensor], None]:
        """Return what leaves `(tokens, width)` of a layer for participants that read it."""
        kept = torch.int32 if dtype == "int32" else self._context.dtype
        return self._taps.place(name, TapPlace(prefix, width, size), kept)

    def router(
        self,
        hidden_size: int,
        experts: int,
        routing: Routing,
        prefix: str,
        *,
        bias: bool = False,
        correction: str = "",
        table: tuple[str, int] | None = None,
    ) -> Router | TableRouter:
        """Return what chooses the experts of a token. Its logits are float32."""
        if bool(correction) is not routing.correction:
            raise ValueError(
                f"router {prefix}: routing.correction is {routing.correction}, and {correction!r} its tensor"
            )
        site = LayerSite(ROUTER, prefix, hidden_size, [("", experts)], bias)
        logits = Linear(site, self._store(Placed(site, whole(site))), self._context)
        if table is not None:
            name, vocabulary = table
            # Whole numbers up to 2^24 are the same in float32.
            return TableRouter(logits, self.parameter(name, (vocabulary, routing.top_k), dtype="float32"), routing)
        choice = self.parameter(correction, (experts,), dtype="float32") if correction else None
        return Router(logits, choice, routing, self.operation("route", experts=experts, top_k=routing.top_k))

    def experts(
        self,
        experts: int,
        hidden_size: int,
        size: int,
        prefix: str,
        activation: api.Activation,
        *,
        parts: Sequence[str] = ("gate_proj", "up_proj"),
        down: str = "down_proj",
        fused: Literal["halves", "interleaved"] | None = None,
        bias: bool = False,
    ) -> Experts:
        """Return the MLPs of all experts. Raises `CheckpointError` CORE-M184, ranks cannot divide their size."""
        inner, own = self._roles.experts(prefix, size, fused)
        widen = self._of_experts(
            "experts_in", prefix, experts, parts, hidden_size, Cuts((own,), Cut.all(hidden_size)), bias
        )
        first = self._roles.ranks.rank == 0
        if bias and not first:
            self.left_out.update(f"{prefix}.{expert}.{down}.bias" for expert in range(experts))
        whole_rows = Cuts((Cut.all(hidden_size),), inner)
        narrow = self._of_experts("experts_out", prefix, experts, (down,), inner.size, whole_rows, bias and first)
        return Experts(widen, activation, narrow, None if inner.complete else self._all_reduce)

    def _of_experts(
        self, op: str, prefix: str, experts: int, parts: Sequence[str], inputs: int, cuts: Cuts, bias: bool
    ) -> WeightsLayer:
        """Return one product with the weights of all experts; `cuts` has the outputs of each part."""
        (own,), count = cuts.outputs, experts * len(parts)
        names = [(f"{expert}.{part}", own.size) for expert in range(experts) for part in parts]
        site = LayerSite("experts", prefix, inputs, names, bias, experts=experts)
        placed = Placed(site, Cuts((own,) * count, cuts.inputs))
        return WeightsLayer(site, self._store(placed, op=op, dims={"experts": experts}), self._context)

    def by_position(self, size: int, rows: Callable[[int], Tensor]) -> PositionTable:
        """Return rows of a table that are looked up by position."""
        table = PositionTable(size, rows, self._max_positions, self._context)
        self.position_tables.append(table)
        return table

    def rope(self, config: RopeConfig) -> RotaryEmbedding:
        """Return the rotary embedding of `config`; equal configurations share one table.

        Raises:
            CheckpointError: CORE-M125, core does not compute its scaling rule.
        """
        for known, rope in self.ropes:
            if known == config:
                return rope
        positions = self._max_positions or config.context
        op = "rotary_interleaved" if config.interleaved else "rotary"
        rotate = self._kernels.pick(op, head_dim=config.head_dim, rotary_dim=config.rotary_dim)
        rope = RotaryEmbedding(
            config,
            positions,
            self._context,
            rotate=rotate,
            owner=self._kernels.owner(rotate),
            commanded=op in self._kernels.named,
        )
        self.ropes.append((config, rope))
        return rope

    def weights(
        self,
        kind: str,
        op: str,
        prefix: str,
        in_features: int,
        parts: Mapping[str, int],
        *,
        bias: bool = False,
        dims: Mapping[str, int] | None = None,
    ) -> WeightsLayer:
        """Return a layer of a plugin's own kind, whose weight an operation of a plugin multiplies with."""
        site = LayerSite(kind, prefix, in_features, list(parts.items()), bias)
        return WeightsLayer(site, self._store(Placed(site, whole(site)), op=op, dims=dims), self._context)

    def operation(self, name: str, **dims: int) -> Operation:
        """Return the form of an operation for these sizes."""
        form = self._kernels.pick(name, **dims)
        return Operation(form, self._context.place(f"operation '{name}'", self._kernels.owner(form)))

    def gated_activation(self, name: str) -> api.Activation:
        """Return `act(gate) * up`. Raises `CheckpointError` CORE-M127 for a name that is not known."""
        if name in _GATED or name not in _PLAIN:
            return self._kernels.pick(_named(_GATED, "gated activation", name))
        return Gated(self.activation(name))

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
        slopes: Sequence[float] | None = None,
        rooted: bool = False,
        shared: bool = False,
        prefix: str | None = None,
    ) -> AttentionModule:
        """Return the attention of KV layer `layer`.

        Raises:
            PluginError: CORE-P230, the backend's layer takes no sinks, although it was chosen for such a model.
        """
        given = None if slopes is None else tuple(slopes)
        if given is not None and len(given) != num_heads:
            raise ValueError(f"attention layer {layer} has {num_heads} heads on this rank, and {len(given)} slopes")
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
            slopes=given,
            rooted=rooted,
        )
        if shared:
            self._keep(prefix)
            return shared_attention(self.attentions, site)
        backed = self._ask(self._context.owners.attention, "layer()", ATTENTION_LAYER, self._backend.layer, site)
        module = AttentionModule(site, backed, self._context, rotates=self._rotates)
        if sinks is not None:
            self.groups.append(sinks_group(backed, site, sinks, self._context.owners.attention))
        self._keep(prefix, module)
        return module

    def latent_attention(
        self,
        layer: int,
        *,
        num_heads: int,
        latent_dim: int,
        rope_dim: int,
        key_dim: int,
        value_dim: int,
        scale: float,
        up: str,
        picks: int | None = None,
        prefix: str | None = None,
    ) -> LatentModule:
        """Return the multi-head latent attention of KV layer `layer`.

        Raises:
            PluginError: CORE-P110, the attention backend has none, although it was chosen for such a model.
        """
        owner = self._context.owners.attention
        backend = require_latent(self._backend, owner)
        site = LatentSite(layer, num_heads, latent_dim, rope_dim, key_dim, value_dim, scale, picks)
        backed = self._ask(owner, "latent()", LATENT_LAYER, backend.latent, site)
        if picks is not None:
            require_takes_picks(backed, owner)
        self._store_up(site, up, backed.use_up)
        module = LatentModule(site, backed, self._context)
        self._keep(prefix, module)
        return module

    def compressed_attention(
        self, layer: int, *, num_heads: int, head_dim: int, scale: float, ratio: int, picks: int | None = None
    ) -> CompressedModule:
        """Return attention to compressed entries, with KV layer `layer`.

        Raises:
            PluginError: CORE-P110, the attention backend has none, although it was chosen for such a model.
        """
        owner = self._context.owners.attention
        backend = require_compressed(self._backend, owner)
        site = CompressedSite(layer, num_heads, head_dim, scale, ratio, picks)
        backed = self._ask(owner, "compressed()", COMPRESSED_LAYER, backend.compressed, site)
        module = CompressedModule(site, backed, self._context)
        self._keep(None, module)
        return module

    def picker(
        self, layer: int, *, num_heads: int, key_dim: int, scale: float, picks: int, ratio: int = 1
    ) -> PickerModule:
        """Return what picks positions for latent attention, or entries for compressed one, with KV layer `layer`.

        Raises:
            PluginError: CORE-P110, the attention backend has none, although it was chosen for such a model.
        """
        owner = self._context.owners.attention
        backend = require_picks(self._backend, owner)
        site = PickSite(layer, num_heads, key_dim, scale, picks, ratio)
        module = PickerModule(site, self._ask(owner, "picker()", PICKER, backend.picker, site), self._context)
        self._keep(None, module)
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
        bias: Callable[[int, torch.device], Tensor] | None = None,
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

    def _keep(self, prefix: str | None, *modules: CachedAttention) -> None:
        """Record what keeps something of each token, and below which module checkpoints may have scales for it."""
        self.attentions += modules
        if prefix is not None:
            self.scaled.setdefault(prefix, []).extend(modules)

    def _store(self, placed: Placed, *, op: str = "linear", dims: Mapping[str, int] | None = None) -> WeightGroup:
        site, method = placed.site, self._context.owners.quantization
        with blamed(method, f"form() of {site.kind} '{site.prefix}'"):
            forms = tuple(self._form.form(site, name) for name, _ in site.parts)
        place = ProductPlace(site, forms, self._context.device, self._context.dtype, self._method, dims or {})
        product, owner = self._kernels.product(place, op)
        product = self._wrapped(site, product, self._kernels.contract(op))
        group = WeightGroup(site, self._form, product, (method, owner), placed.cuts)
        self.groups.append(group)
        return group

    def _stored_names(self, site: LayerSite) -> Iterator[str]:
        """Yield what the checkpoint calls the tensors of a layer that another rank has."""
        for name, _ in site.parts:
            with blamed(self._context.owners.quantization, f"stored() of {site.kind} '{site.prefix}'"):
                suffixes = [one.suffix for one in self._form.stored(site, name)]
            for suffix in (*suffixes, BIAS) if site.bias else suffixes:
                yield f"{site.module(name)}.{suffix}"

    def _store_up(self, site: LatentSite, prefix: str, use_up: Callable[[Tensor, Tensor], None]) -> None:
        """Record the up-projection of a latent layer: this rank's heads, opened once and handed to the backend."""
        method, head = self._context.owners.quantization, site.key_dim + site.value_dim
        rows = self._roles.share(site.num_heads * self._roles.ranks.size * head, f"outputs of '{prefix}'", head)
        stored = LayerSite("linear", prefix, site.latent_dim, [("", rows.size)], False)
        with blamed(method, f"form() of '{prefix}'"):
            form = self._form.form(stored, "")
        place = ProductPlace(stored, (form,), self._context.device, self._context.dtype, self._method)
        cuts = Cuts((rows,), Cut.all(site.latent_dim))
        group = WeightGroup(stored, self._form, UpProjection(place, site), (method, "core's latent attention"), cuts)
        group.layers.append(UpReader(use_up))
        self.groups.append(group)

    def _norm(
        self,
        kind: type[N],
        op: str,
        size: int,
        eps: float,
        prefix: str,
        *,
        bias: bool = False,
        offset: float = 0.0,
        weight: bool = True,
    ) -> N:
        plain, add = self._kernels.pick(op, size=size), self._kernels.pick(f"add_{op}", size=size)
        place = self._context.place(f"{op} '{prefix}'", self._kernels.owner(plain, add))
        layer = kind(place, self._context.dtype, size, eps, plain, add)
        self._fill_norm(layer, Cut.all(size), prefix, bias=bias, offset=offset, weight=weight)
        return layer

    def _fill_norm(
        self, layer: Norm, share: Cut, prefix: str, *, bias: bool = False, offset: float = 0.0, weight: bool = True
    ) -> None:
        dtype = self._context.dtype
        if weight:
            self.groups.append(norm_group(layer, share, prefix, dtype, bias=bias, offset=offset))
        else:
            layer.bind({"weight": torch.ones(share.size, dtype=dtype, device=self._context.device)})

    def _ask(self, owner: str, what: str, contract: Contract, function: Callable[[S], T], site: S) -> T:
        """Return what a plugin hands out for a place, or what hooks make of it; both fit the contract."""
        return self._wrapped(site, self._handed[owner].ask(what, contract, function, site), contract)

    def _wrapped(
        self, site: LayerSite | AttentionSite | LatentSite | PickSite | CompressedSite, layer: T, contract: Contract
    ) -> T:
        """Return what hooks make of a layer."""
        if self._wrap is None:
            return layer
        wrapped: T = self._wrap(site, layer)
        return self._handed[_HOOKS].fit("core_layer", wrapped, contract)


def _named(known: Mapping[str, T], kind: str, name: str) -> T:
    if name not in known:
        supported = ", ".join(sorted(known))
        raise CheckpointError("CORE-M127", f"{kind} '{name}' is not supported; supported: {supported}.")
    return known[name]
