"""What a decoder is made of, as data. Torch-free.

A module's name is a path below the part that it belongs to, as the checkpoint has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.api import RopeConfig, Routing

if TYPE_CHECKING:
    from core.api import LayerBuilder, PoolingShape
    from core.api.experts import Router
    from core.api.models import Activation

MakeActivation = Callable[["LayerBuilder", str], "Activation"]
"""`(builder, path of the MLP) -> activation`, for one with parameters or a formula of its own."""

MakeRouter = Callable[["LayerBuilder", int, str], "Router"]
"""`(builder, hidden size, path of the router) -> router`, for one that no `Routing` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A norm of hidden states.

    Attributes:
        name: Its module.
        kind: `rms` or `layer`.
        weight, bias: Whether it has them.
        offset: Added to the weight.
    """

    name: str
    kind: Literal["rms", "layer"] = "rms"
    eps: float = 1e-6
    weight: bool = True
    bias: bool = False
    offset: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorm:
    """A norm of queries, keys or values.

    Attributes:
        norm: Kind and name; the name is a path below the attention.
        over: What is normalised: each `head`, with one weight for all of them; each head, with a weight of its own
            (`own`); or `all` heads of a token together.
        stacked: Of `own`: name of the parameter of each head, `{}` for its number; None: one parameter has them all.
    """

    norm: Norm
    over: Literal["head", "own", "all"] = "head"
    stacked: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query attention.

    Attributes:
        name: Its module in a layer.
        projections: Modules of queries, keys, values; or the parts of `fused`, in the order in which it has them.
        output: Module of the output projection.
        fused: The one module that holds queries, keys and values; None: each has its own.
        split: How a fused tensor holds them: `halves`, one after another; `interleaved`, by turns of the heads.
        turns: Turns of an interleaved tensor; None: as many as there are heads of keys and values.
        order: In which order `projections` come: `q`, `k`, `v`, by their first letters.
        scale: Factor of the scores.
        bias, output_bias: Whether the linears have one.
        rope: None: nothing is rotated in this layer.
        rotates_first: The norms of queries and keys come behind the rotation.
        window, chunk: A query sees so many tokens, or its own chunk of so many; None: all.
        softcap: Soft cap of the scores.
        slopes: ALiBi, one for each head.
        sinks: Name of the parameter of the sinks below the attention.
        clip: Queries, keys and values are held between minus this and this.
        clips_normed: They are so between norms and rotation, not before both.
        keys_are_values: There is no projection of values: they are the keys before norm and rotation.
        shares: Layer whose keys and values it reads, which has the same geometry; it has none of its own.
        grows: Queries are multiplied by `1 + grows[0] * log(1 + (position + ahead) // grows[1])`, where `ahead` is
            `grows[2]`, or 0.
        value_dim: Size of a head of the values, less than `head_dim`, where each of `projections` is a module; they are
            kept with zeros behind. None: `head_dim`.
        value_scale: Factor of the values.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    name: str = "self_attn"
    projections: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj")
    output: str = "o_proj"
    fused: str | None = None
    split: Literal["halves", "interleaved"] = "halves"
    turns: int | None = None
    order: Literal["qkv", "qvk"] = "qkv"
    bias: bool = False
    output_bias: bool = False
    rope: RopeConfig | None = None
    rotates_first: bool = False
    q_norm: HeadNorm | None = None
    k_norm: HeadNorm | None = None
    v_norm: HeadNorm | None = None
    window: int | None = None
    chunk: int | None = None
    softcap: float | None = None
    slopes: tuple[float, ...] | None = None
    sinks: str | None = None
    clip: float | None = None
    clips_normed: bool = False
    keys_are_values: bool = False
    shares: int | None = None
    grows: tuple[float, int] | tuple[float, int, int] | None = None
    value_dim: int | None = None
    value_scale: float = 1.0

    @property
    def parts(self) -> int:
        """How many of queries, keys and values it projects."""
        if self.shares is not None:
            return 1
        return 2 if self.keys_are_values else 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """`down(act(gate(x)) * up(x))`, or `down(act(up(x)))`.

    Attributes:
        size: Of what is between the linears.
        name: Its module in a layer; empty: its linears are modules of the layer.
        gate: Module of the gate; None: there is none.
        fused: The one module that holds gate and up, in this order; None: each has its own.
        bias, down_bias: Whether `gate` and `up`, and `down`, have one.
    """

    size: int
    activation: str | MakeActivation = "silu"
    name: str = "mlp"
    gate: str | None = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    fused: str | None = None
    bias: bool = False
    down_bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A mixture of experts: the weighted sum of what the experts of a token make of it.

    Attributes:
        experts: How many there are.
        size: Inner size of an expert.
        name: Its module in a layer; empty: its parts are modules of the layer.
        router, module: Modules of the router, and of the experts, below which each has its number.
        router_bias: Whether the router's logits have a bias.
        correction: Parameter of the choice's biases, a path below `name`; None: there is none.
        parts: Modules of an expert that read the hidden state; one, if it holds both gate and up.
        down: Module of an expert that gives its result.
        fused: How one module holds gate and up: one after the other, or by turns, row by row.
        bias: Whether the experts' linears have one.
        shared: An MLP whose result is added for every token; its name is a path below `name`.
        shared_gate: Module of a linear with one output, whose sigmoid is the factor of that; None: there is no factor.
        chooses: Makes the router; None: it is as `routing` says.
        weighs_input: A token's weights are factors of what its experts read, and their results are summed as they are.
    """

    experts: int
    size: int
    routing: Routing
    activation: str | MakeActivation = "silu"
    name: str = "mlp"
    router: str = "gate"
    module: str = "experts"
    router_bias: bool = False
    correction: str | None = None
    parts: tuple[str, ...] = ("gate_proj", "up_proj")
    down: str = "down_proj"
    fused: Literal["halves", "interleaved"] | None = None
    bias: bool = False
    shared: MLP | None = None
    shared_gate: str | None = None
    chooses: MakeRouter | None = None
    weighs_input: bool = False

    def path(self, layer: str, name: str) -> str:
        """Return the path of a part of it in a layer."""
        return ".".join(one for one in (layer, self.name, name) if one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Attention and MLP (or a mixture of experts), each of which adds to the residual.

    Attributes:
        before_attention, after_attention, before_mlp, after_mlp: Norms of what comes in, and of what is added.
        parallel: Both read what came into the layer, and their sum is added. `before_mlp` None: behind one norm.
        closing: The norms behind (`after_*`) are of the sum with the residual, and their result is the new residual.
        scale: Factor of what is added.
        beside, before_beside: An MLP of the residual behind the attention, and its norm. `mlp` then reads what came
            into the layer, and the sum of both is added.
    """

    attention: Attention
    mlp: MLP | Mixture
    before_attention: Norm | None = None
    after_attention: Norm | None = None
    before_mlp: Norm | None = None
    after_mlp: Norm | None = None
    parallel: bool = False
    closing: bool = False
    scale: float = 1.0
    beside: MLP | None = None
    before_beside: Norm | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """Learned positions, which are added to the embedding.

    Attributes:
        name: Module of the table.
        rows: Its rows.
        offset: Row of position 0.
    """

    name: str
    rows: int
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A decoder and its head.

    Attributes:
        max_positions: Longest context in tokens.
        root: Path of the decoder's modules; empty: they are the checkpoint's.
        layer: Path of a layer below it, `{}` for its number.
        embed, head: Modules of the embedding (below the root) and of the output projection (of the checkpoint).
        embed_size: Size of the embedding, where a projection `project_in` brings it to the hidden size, and
            `project_out` back.
        embed_scale: Factor of the embedding.
        sinusoid: Sinusoidal positions are added to the embedding: whether the sines come first, cosines behind, as in
            `fairseq`; the number is the row of position 0.
        logit_scale, softcap: Factor, then soft cap, of the logits.
        dtype: The checkpoint's own.
        causal: Whether a token sees only those before it.
        pooling: What it gives instead of tokens; with labels, by the linear layer `score`.
        renames, skips, transposes, experts: Further rules of checkpoint names, as those of `WeightRules`.
        layers_key: Key of the configuration that counts the layers.
    """

    vocab_size: int
    hidden_size: int
    layers: tuple[Layer, ...]
    final_norm: Norm | None
    max_positions: int
    dtype: str = "bfloat16"
    root: str = "model"
    layer: str = "layers.{}"
    embed: str = "embed_tokens"
    embed_size: int | None = None
    embed_scale: float = 1.0
    embed_norm: Norm | None = None
    learned: Learned | None = None
    sinusoid: int | None = None
    head: str = "lm_head"
    head_bias: bool = False
    tied: bool = False
    logit_scale: float = 1.0
    softcap: float | None = None
    causal: bool = True
    pooling: PoolingShape | None = None
    renames: tuple[tuple[str, str], ...] = ()
    skips: tuple[str, ...] = ()
    transposes: tuple[str, ...] = ()
    experts: tuple[tuple[str, str], ...] = ()
    layers_key: str = "num_hidden_layers"
    project_in: str = "project_in"
    project_out: str = "project_out"

    def path(self, name: str) -> str:
        """Return the path of a module below the root."""
        return f"{self.root}.{name}" if self.root else name

    def layer_path(self, index: int | str) -> str:
        """Return the path of a layer; `index` may be `{}`."""
        return self.path(self.layer.format(index))
