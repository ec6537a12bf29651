"""Description of a decoder, as data. Torch-free.

A module's name is a path below the part that it belongs to, as the checkpoint has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from core.api import RopeConfig, Routing

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, PoolingShape, StepInputs
    from core.api.experts import Router
    from core.api.layers import Activation

MakeActivation = Callable[["LayerBuilder", str], "Activation"]
"""`(builder, path of the MLP) -> activation`, for one with parameters or a formula of its own."""

MakeRouter = Callable[["LayerBuilder", int, str], "Router"]
"""`(builder, hidden size, path of the router) -> router`, for one that no `Routing` says."""


MakeRecurrence = Callable[["LayerBuilder", int, str], Callable[["Tensor", "StepInputs"], "Tensor"]]
"""`(builder, hidden size, path) -> (hidden states, step) -> hidden states`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """A norm of hidden states.

    Attributes:
        name: Its module.
        kind: `rms` or `layer`.
        weight, bias: Whether it has them.
        offset: Added to the weight.
        groups: Equal parts of the numbers, each of which is normalised by itself; of norms of hidden states.
    """

    name: str
    kind: Literal["rms", "layer"] = "rms"
    eps: float = 1e-6
    weight: bool = True
    bias: bool = False
    offset: float = 0.0
    groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorm:
    """A norm of queries, keys or values.

    Attributes:
        norm: Kind and name; the name is a path below the attention.
        over: What is normalised: each `head`, with one weight for all of them; each head, with a weight of its own
            (`own`); or `all` heads of a token together.
        stacked: Of `own`: name of the parameter of each head, `{}` for its number; None: one parameter has them all.
        flat: Of `own`: that parameter has the heads in one row.
        parameter: Of `own`: its name, where it is no module's weight.
    """

    norm: Norm
    over: Literal["head", "own", "all"] = "head"
    stacked: str | None = None
    flat: bool = False
    parameter: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """How the later passes of a decoder attend: to the keys and values of the first pass, and to their own.

    What a head gives is `own + gate * (first - own)`, where its gate is the sigmoid of a product with its query.

    Attributes:
        gate: Module of the weight `(heads, head_dim)` and the bias of the gates, below the root, `{}` for the layer.
        window: A query sees so many tokens of its own pass.
    """

    gate: str
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Grouped-query attention.

    Attributes:
        name: Its module in a layer.
        projections: Modules of queries, keys, values; or the parts of `fused`, in the order in which it has them.
        output: Module of the output projection.
        fused: The one module that holds queries, keys and values; None: each has its own.
        fused_kv: The one module that holds keys and values, beside that of the queries.
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
        rooted: Their factor is the square root of the distance.
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
        gate: Module of a projection of what the layer reads, as wide as all heads; behind `gate_activation` it is
            multiplied by what attention gives. None: there is none.
        gated_queries: The module of the queries, which is not `fused`, holds such a gate too, behind the queries of
            each head and as wide.
        mix: How passes behind the first attend; None: each to its own keys and values.
    """

    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    name: str = "self_attn"
    projections: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj")
    output: str = "o_proj"
    fused: str | None = None
    fused_kv: str | None = None
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
    rooted: bool = False
    sinks: str | None = None
    clip: float | None = None
    clips_normed: bool = False
    keys_are_values: bool = False
    shares: int | None = None
    grows: tuple[float, int] | tuple[float, int, int] | None = None
    value_dim: int | None = None
    value_scale: float = 1.0
    gate: str | None = None
    gated_queries: bool = False
    gate_activation: str | MakeActivation = "sigmoid"
    mix: Mix | None = None

    @property
    def parts(self) -> int:
        """How many of queries, keys and values it projects."""
        if self.shares is not None:
            return 1
        return 2 if self.keys_are_values else 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """An index, which picks the positions that latent attention sees.

    Attributes:
        heads: Index heads.
        key_dim: Size of an index key, and of a head of the index queries.
        rope: Of both; it may rotate a part of them.
        eps: Of the norm of the keys.
        name: Its module below the attention.
    """

    heads: int
    key_dim: int
    rope: RopeConfig
    eps: float = 1e-6
    name: str = "indexer"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention: a token keeps one latent and one rotated key for all heads.

    Its modules have the names that DeepSeek V2 gave them.

    Attributes:
        latent_dim: Size of the latent (`kv_a_proj_with_mqa`, `kv_a_layernorm`, `kv_b_proj`).
        query_dim: Size of the latent of the queries (`q_a_proj`, `q_a_layernorm`, `q_b_proj`); None: they are made
            of the hidden state at once (`q_proj`).
        key_dim, rope_dim: Sizes of the parts of a head of queries and keys that are not rotated, and that are.
        value_dim: Size of a head of the values.
        scale: Factor of the scores.
        rope: None: nothing is rotated, and the part that would be is one key for all heads.
        bias: Whether the modules that make latents have one.
        output_bias: Whether the output projection has one.
        eps: Of the norms of the latents.
        picks: Most positions that a query sees; None: it sees all.
        index: What picks them; None: the index of a layer before. Needs `query_dim`.
        latent_scale: Factor of the latent that is kept, behind its norm.
        name: Its module in a layer.
        output: Module of the output projection.
    """

    heads: int
    latent_dim: int
    query_dim: int | None
    key_dim: int
    rope_dim: int
    value_dim: int
    scale: float
    rope: RopeConfig | None
    bias: bool = False
    output_bias: bool = False
    eps: float = 1e-6
    picks: int | None = None
    index: Index | None = None
    latent_scale: float = 1.0
    name: str = "self_attn"
    output: str = "o_proj"

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values: each query head has its own."""
        return self.heads

    @property
    def head_dim(self) -> int:
        """Size of a head of queries and keys."""
        return self.key_dim + self.rope_dim

    @property
    def kept(self) -> int:
        """Numbers that a token keeps."""
        return self.latent_dim + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class MLP:
    """`down(act(gate(x)) * up(x))`, or `down(act(up(x)))`.

    Attributes:
        size: Of what is between the linears.
        name: Its module in a layer; empty: its linears are modules of the layer.
        gate: Module of the gate; None: there is none.
        fused: The one module that holds gate and up, in this order; None: each has its own.
        bias, down_bias: Whether `gate` and `up`, and `down`, have one.
        divided: Whether ranks divide it; not where the activation looks at more than one number of a row.
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
    divided: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A linear layer from hidden states to hidden states, in the place of attention or MLP.

    Attributes:
        name: Its module in a layer.
        bias: Whether it has one.
    """

    name: str
    bias: bool = False


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
        identities: Further experts, with numbers behind the others', which give what they read and have no weights.
        latent: Size of what experts read and give, where linears stand before and behind them; the router and the
            shared MLP read the hidden state itself. None: the hidden size.
        narrow, widen, latent_bias: Modules of these linears, and whether they have a bias.
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
    identities: int = 0
    latent: int | None = None
    narrow: str = "fc1_latent_proj"
    widen: str = "fc2_latent_proj"
    latent_bias: bool = False

    def path(self, layer: str, name: str) -> str:
        """Return the path of a part of it in a layer."""
        return ".".join(one for one in (layer, self.name, name) if one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A mixer that reads its past by recurrence, in the place of an attention.

    Attributes:
        name: Its module in a layer.
        make: Makes it of the layer builder, the hidden size and its path.
        weights: Modules below it whose weights have these sizes: key of the configuration and size of each dimension.
    """

    name: str
    make: MakeRecurrence
    weights: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Attention and MLP (or a mixture of experts), each of which adds to the residual.

    Attributes:
        attention, mlp: None: the layer has none, and no norms of it.
        recurrence: What reads the same as the attention, and is added to what that gives.
        before_attention, after_attention, before_mlp, after_mlp: Norms of what comes in, and of what is added.
        parallel: Both read what came into the layer, and their sum is added. `before_mlp` None: behind one norm.
        closing: The norms behind (`after_*`) are of the sum with the residual, and their result is the new residual.
        scale: Factor of what is added.
        weighs: Factors of the residual and of what is added to it: those of the attention, and those of the MLP. The
            residual is then what the norm before gives, and `scale` does not count.
        keeps: Places in which the hidden states that come in are kept for later layers.
        blends: `(place, share)`, one after another and behind `keeps`: the hidden states that come in become `share` of
            those that are kept there, and of themselves the rest.
        beside, before_beside: An MLP of the residual behind the attention, and its norm. `mlp` then reads what came
            into the layer, and the sum of both is added.
        second: Another layer behind it whose parts have their modules in the same layer of the checkpoint, and whose
            attention is a KV layer of its own.
        aside: A mixture that reads what `mlp` reads, and whose result is added behind `second`.
    """

    attention: Attention | LatentAttention | Recurrence | Linear | None
    mlp: MLP | Mixture | Linear | None
    recurrence: Recurrence | None = None
    before_attention: Norm | None = None
    after_attention: Norm | None = None
    before_mlp: Norm | None = None
    after_mlp: Norm | None = None
    parallel: bool = False
    closing: bool = False
    scale: float = 1.0
    weighs: tuple[tuple[float, float], tuple[float, float]] | None = None
    keeps: tuple[int, ...] = ()
    blends: tuple[tuple[int, float], ...] = ()
    beside: MLP | None = None
    before_beside: Norm | None = None
    second: Layer | None = None
    aside: Mixture | None = None

    @property
    def parts(self) -> tuple[Layer, ...]:
        """This layer, and the second one, if there is one."""
        return (self,) if self.second is None else (self, self.second)

    @property
    def recurrences(self) -> tuple[Recurrence, ...]:
        """Mixers that read their past by recurrence, in the place of the attention or beside it."""
        return tuple(one for one in (self.attention, self.recurrence) if isinstance(one, Recurrence))


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
class Score:
    """How classes follow from a pooled hidden state.

    Attributes:
        name: Module of a linear layer with a number for each label.
        bias: Whether it has one.
        inner: Module of another one before it, as wide as hidden states, with a bias and a ReLU behind it.
        scale: Factor of the numbers.
        tokens: Instead of these layers: the ids of tokens, whose logits the numbers are.
        difference: There are two tokens, and one number: by how much the second's logit exceeds the first's.
    """

    name: str = "score"
    bias: bool = False
    inner: str | None = None
    scale: float = 1.0
    tokens: tuple[int, ...] = ()
    difference: bool = False


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
        passes: How often the layers run, each time on what the time before gave, and with keys and values of their own.
        norm_between: The last norm is behind each of these, not only behind the last.
        causal: Whether a token sees only those before it.
        pooling: What it gives instead of tokens; with labels, by `score`, and with a size of its own, by the linear
            layer `linear` on every token.
        score: See `Score`.
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
    passes: int = 1
    norm_between: bool = False
    causal: bool = True
    pooling: PoolingShape | None = None
    score: Score = Score()
    renames: tuple[tuple[str, str], ...] = ()
    skips: tuple[str, ...] = ()
    transposes: tuple[str, ...] = ()
    experts: tuple[tuple[str, str] | tuple[str, str, int], ...] = ()
    layers_key: str = "num_hidden_layers"
    project_in: str = "project_in"
    project_out: str = "project_out"

    @property
    def attentions(self) -> tuple[Attention | LatentAttention, ...]:
        """The attention of each layer that has one."""
        return tuple(
            one.attention
            for layer in self.layers
            for one in layer.parts
            if isinstance(one.attention, Attention | LatentAttention)
        )

    @property
    def halves(self) -> int:
        """KV layers of a layer: two where some have a second one in them."""
        return max(len(layer.parts) for layer in self.layers)

    @property
    def recurrent(self) -> bool:
        """Whether a layer reads its past by recurrence."""
        return any(layer.recurrences for layer in self.layers)

    def path(self, name: str) -> str:
        """Return the path of a module below the root."""
        return f"{self.root}.{name}" if self.root else name

    def layer_path(self, index: int | str) -> str:
        """Return the path of a layer; `index` may be `{}`."""
        return self.path(self.layer.format(index))
