"""Layers that a model is made of, and the builder that it asks for them by role.

Core decides quantization, sharding and kernels; a model computes with what it was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

V = TypeVar("V", "Sequence[float]", "Tensor")

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import Tensor

    from core.api.attention import AttentionPlan
    from core.api.experts import Experts, Router, Routing
    from core.api.rotary import RopeConfig
    from core.api.states import State, StateRows


class Linear(Protocol):
    """`(tokens, in_features) -> (tokens, sum of out_features)`.

    Attributes:
        splits: Output features of each part on this rank, in order.
    """

    splits: Sequence[int]

    def __call__(self, x: Tensor) -> Tensor: ...


class Norm(Protocol):
    """RMS or layer norm; all shapes are `(tokens, size)`."""

    def __call__(self, x: Tensor) -> Tensor: ...

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Return `(norm(x + residual), x + residual)`."""
        ...


class Rope(Protocol):
    """Rotates `q (tokens, heads, head_dim)` and `k (tokens, kv_heads, head_dim)` by position; may be in place."""

    def __call__(self, positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]: ...


class Attention(Protocol):
    """Writes k, v to the paged cache and attends.

    Shapes: `q (tokens, heads, head_dim)`, `k, v (tokens, kv_heads, head_dim)` -> `(tokens, heads * head_dim)`. Both
    None: nothing is written, and the queries see what an earlier call of the step has.

    `rope` is what `LayerBuilder.rope` returned: queries and keys are rotated by it first. A backend with the feature
    `rotary` does so while it stores the keys.
    """

    def __call__(
        self, q: Tensor, k: Tensor | None, v: Tensor | None, step: StepInputs, rope: Rope | None = None
    ) -> Tensor: ...


class LatentAttention(Protocol):
    """Writes latents and rotated keys to the paged cache and attends.

    Shapes: `q (tokens, heads, key_dim)`, `q_rope (tokens, heads, rope_dim)`, `latent (tokens, latent_dim)`, `rope_key
    (tokens, rope_dim)` -> `(tokens, heads * value_dim)`. `picked` is what a `PositionPicker` gave in this step; only of
    layers with `picks`.
    """

    def __call__(
        self,
        q: Tensor,
        q_rope: Tensor,
        latent: Tensor,
        rope_key: Tensor,
        step: StepInputs,
        picked: Tensor | None = None,
    ) -> Tensor: ...


class PositionPicker(Protocol):
    """Writes index keys to a paged cache of their own, and chooses the positions that queries see.

    Shapes: `q (tokens, heads, key_dim)` and `key (tokens, key_dim)` in the compute dtype, `weights (tokens, heads)`
    float32 -> `(tokens, picks)` int32, or None where every query sees all. It is for `LatentAttention`, of any layers;
    with a `ratio` it chooses entries, for `CompressedAttention` of the same.
    """

    def __call__(self, q: Tensor, key: Tensor, weights: Tensor, step: StepInputs) -> Tensor | None: ...


class CompressedAttention(Protocol):
    """Writes compressed entries to the paged cache, and attends to those that queries see.

    Shapes: `q (tokens, heads, head_dim)`, `entries (tokens, head_dim)` -> `(tokens, heads, head_dim)` and `(tokens,
    heads)`, both float32: means, and the logarithms of the sums of `exp(score)`, by which they are put together with
    what queries see besides. Zeros and -inf for queries that see no entry. Only the entry of the last of `ratio` tokens
    is kept. `picked` is what a `PositionPicker` of the same `ratio` gave in this step; only of layers with `picks`.
    """

    def __call__(
        self, q: Tensor, entries: Tensor, step: StepInputs, picked: Tensor | None = None
    ) -> tuple[Tensor, Tensor]: ...


class Embedding(Protocol):
    """`(tokens,) int64 -> (tokens, hidden)`."""

    def __call__(self, token_ids: Tensor) -> Tensor: ...


class Parameter(Protocol):
    """A tensor of the checkpoint. Asked for in each step: weights may be replaced between steps."""

    def __call__(self) -> Tensor: ...


class Activation(Protocol):
    """Gated: `(tokens, 2 * size)` as `[gate, up]` -> `(tokens, size)`. Plain: element by element."""

    def __call__(self, x: Tensor) -> Tensor: ...


class Weights(Protocol):
    """A layer of a plugin's own kind: weights that an operation of a plugin multiplies with.

    Called with what the operation's reference form takes before its parameters.

    Attributes:
        splits: Output features of each part, in order.
    """

    splits: Sequence[int]

    def __call__(self, *inputs: Any) -> Any: ...


Shard = Literal["out", "in"]
"""How ranks divide a linear layer: by outputs, of which each rank has its own; or by inputs, and results are summed."""


class Heads(NamedTuple):
    """Heads of one rank.

    Attributes:
        heads, kv_heads: How many of the queries, and of the keys and values.
        first: Number of its first query head among those of all ranks.
    """

    heads: int
    kv_heads: int
    first: int = 0

    def of(self, values: V) -> V:
        """Return the values of this rank's query heads, out of one (or a row) for each head of the model."""
        return values[self.first : self.first + self.heads]


class StepInputs(Protocol):
    """Inputs of `Model.forward` for one step.

    Attributes:
        token_ids: `(tokens,)` int64, on the device.
        positions: `(tokens,)` int64, position of each token in its request.
        plans: The attention backend's plans for this step, one per cache group: for layers that share a block table.
        plan: The first of them.
        states: Its rows, for states (`StateMemory`); None for models whose shape is not `recurrent`.

    Steps of a pooling engine also have `token_types`, `(tokens,)` int64 or None: 1 for tokens of the second text of a
    pair, 0 for all others; None when all are 0. And `arrays`: for each request of the step, in order, the tensors that
    came with its prompt, by name, on the device; an empty tuple when none of them has any.
    """

    token_ids: Tensor
    positions: Tensor
    plans: Sequence[AttentionPlan]
    states: StateRows | None

    @property
    def plan(self) -> AttentionPlan: ...


class LayerBuilder(Protocol):
    """Hands out layers and records which checkpoint tensors fill them.

    Layers compare what they are called with to the sizes they were built for, and to the compute dtype, before any
    plugin sees it; what differs is a `PluginError` CORE-P170.

    Every `prefix` is the module path in the Hugging Face checkpoint, so that a tensor
    `<prefix>.weight` lands in the layer without a rule.

    Several ranks may divide a model. It names the sizes of the whole model here, says with `shard` how ranks divide a
    layer, and computes with the sizes of its own rank: those of `heads` and of `Linear.splits`. What cannot be divided
    among the ranks is a `CheckpointError` CORE-M184.

    Attributes:
        options: The model plugin's own options.
    """

    @property
    def options(self) -> Mapping[str, Any]: ...

    def embedding(
        self,
        vocab_size: int,
        hidden_size: int,
        prefix: str,
        *,
        scale: float = 1.0,
        shard: Literal["out"] | None = "out",
    ) -> Embedding:
        """Return the token embedding, filled from `<prefix>.weight (vocab_size, hidden_size)`.

        Args:
            scale: Factor of the rows that are looked up, rounded to the compute dtype. A tied head is not scaled.
            shard: How ranks divide it: by rows, and the result is the sum over all ranks. None: every rank has all of
                it, as befits a small one.
        """
        ...

    def lm_head(
        self,
        vocab_size: int,
        hidden_size: int,
        prefix: str,
        tied_to: Embedding | None = None,
        *,
        bias: bool = False,
    ) -> Linear:
        """Return the output projection, filled from `<prefix>.weight (vocab_size, hidden_size)` and `<prefix>.bias`.

        Ranks divide it by rows: one after another, their results are those of the vocabulary.

        Args:
            tied_to: An embedding of this builder whose weights it uses; it then has no bias. `<prefix>.weight` is left
                out, also where the checkpoint has it.
        """
        ...

    def heads(self, num_heads: int, num_kv_heads: int) -> Heads:
        """Return how many of a model's heads this rank has. Where ranks exceed the heads of keys and values, several
        ranks have copies of one.

        Raises:
            CheckpointError: CORE-M183, the heads cannot be divided among the ranks.
        """
        ...

    def linear(
        self,
        in_features: int,
        out_features: int,
        prefix: str,
        *,
        bias: bool = False,
        shard: Shard | None = None,
    ) -> Linear:
        """Return a linear layer, filled from `<prefix>.weight (out_features, in_features)` and `<prefix>.bias`.

        Args:
            in_features, out_features: Of the whole layer.
            shard: How ranks divide it: `out`, and the result is this rank's share of the outputs; `in`, and `x` is this
                rank's share of the inputs, the result the sum over all ranks. None: every rank has all of it.
        """
        ...

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
        """One product for several parts.

        Args:
            parts: Checkpoint module name -> output features, in the order of the concatenated output,
                for example `{"q_proj": 576, "k_proj": 192, "v_proj": 192}` under prefix `...self_attn`.
            shard: As in `linear`; each part is divided by itself.
            units: Part -> outputs that stay together (the size of a head). A part of fewer units than ranks is copied:
                every rank has the unit that its heads use.
            fused: The one module below `prefix` whose tensors hold all parts (`qkv_proj`); the names of the parts are
                then free.
            split: How a fused tensor holds its parts: `halves`, one after another; `interleaved`, by turns, as many as
                the part with the fewest units has, with equally many outputs of a part in each. Query, key and value
                head by head are turns in units of a head; gate and up row by row need no units.
        """
        ...

    def block_linear(
        self,
        in_features: int,
        parts: Mapping[str, int],
        prefix: str,
        blocks: int,
        *,
        bias: bool = False,
        shard: Literal["out"] | None = None,
    ) -> Linear:
        """Return a block-diagonal linear layer: each of `blocks` equal parts of the inputs has weights of its own,
        `<prefix>.<block>.<part>.weight (part / blocks, in_features / blocks)` and `.bias`.

        The result has the parts one after another, and in each of them the outputs of block after block.

        Args:
            in_features, parts: Of all blocks; parts as in `merged_linear`.
            shard: `out`: ranks divide the blocks, so that `x` is this rank's share of the inputs as well.
        """
        ...

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
    ) -> Norm:
        """Return an RMS norm, filled from `<prefix>.weight (size,)`.

        Args:
            offset: Added to the weight while it is loaded: 1 for checkpoints whose norms multiply by `1 + weight`.
            weight: False: the checkpoint has none, and the norm multiplies by nothing.
            shard: `out`: what it normalises is this rank's share of `size` numbers, and the mean square that of all
                of them. For norms over all heads.
            unit: Numbers that stay together, as in `merged_linear`.

        Raises:
            CheckpointError: CORE-M186, nothing sums over the ranks.
        """
        ...

    def layer_norm(
        self,
        size: int,
        eps: float,
        prefix: str,
        *,
        bias: bool = True,
        offset: float = 0.0,
        weight: bool = True,
    ) -> Norm:
        """Return a layer norm, filled from `<prefix>.weight (size,)` and `<prefix>.bias`.

        Args:
            offset, weight: As in `rms_norm`. Without a weight there is no bias either.
        """
        ...

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
        """Return a tensor of the checkpoint that is no matrix of a linear layer.

        Args:
            name: Of the checkpoint's tensor; or of several, which are stacked along a new first dimension.
            shape: Of the whole parameter.
            shard: `out`: ranks divide one of its dimensions.
            unit: Entries of that dimension that stay together, as in `merged_linear`.
            axis: The dimension; the one along which tensors are stacked counts.
            parts: Entries and unit of each of the parts that lie one after another in that dimension, and that ranks
                divide each by itself.
            read: What is made of the stored values, in float32, while they are loaded.
            dtype: In which it is kept.
        """
        ...

    def state(
        self, name: str, shape: Sequence[int], *, dtype: Literal["compute", "float32"] = "float32"
    ) -> StateMemory:
        """Return memory for one state of every request, for an `operation` that takes one. The shape is `recurrent`.

        Args:
            name: Of the layer whose state it is, and which it is: unique in the model.
            shape: Of one request's state; on this rank.
        """
        ...

    def tap(
        self, name: str, prefix: str, width: int, *, size: int = 0, dtype: Literal["compute", "int32"] = "compute"
    ) -> Callable[[Tensor], None]:
        """Return what leaves `(tokens, width)` of a layer for participants that read it, once in every forward pass.

        Where nobody reads it, nothing is kept.

        Args:
            name: What it is: `experts`, the ids of each token's experts.
            prefix: The layer's module path.
            size: What the numbers are below, where they are ids.
        """
        ...

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
    ) -> Router:
        """Return what chooses the experts of a token, filled from `<prefix>.weight (experts, hidden_size)`.

        Every rank has all of it. Logits, scores and weights are float32, whatever the compute dtype. A model may as
        well compute weights and ids on its own.

        Args:
            bias: Whether the logits have a bias, `<prefix>.bias`.
            correction: Name of the checkpoint's tensor `(experts,)` with the biases of the choice, where `routing` says
                that there is a `correction`.
            table: Name of the checkpoint's tensor `(vocabulary, top_k)` of whole numbers, and the size of the
                vocabulary: the experts of each token by its id (hash routing). Nothing is chosen then, only weighed.
        """
        ...

    def experts(
        self,
        experts: int,
        hidden_size: int,
        size: int,
        prefix: str,
        activation: Activation,
        *,
        parts: Sequence[str] = ("gate_proj", "up_proj"),
        down: str = "down_proj",
        fused: Literal["halves", "interleaved"] | None = None,
        bias: bool = False,
    ) -> Experts:
        """Return the MLPs of all experts, `down(activation(parts))`, filled from `<prefix>.<expert>.<part>.weight`.

        Tensors that hold the weights of all experts are taken apart by `WeightRules.experts`.

        Args:
            size: Inner size of an expert: outputs of each part. Ranks divide it.
            activation: `(rows, outputs of all parts) -> (rows, size)`; gated ones of the builder for two parts.
            parts: Modules that read the hidden state; the results are stacked in this order.
            fused: `parts` is one module, which holds gate and up: one after the other, or by turns, row by row.
            bias: Whether the linears have one.
        """
        ...

    def by_position(self, size: int, rows: Callable[[int], Tensor]) -> Embedding:
        """Return what is looked up by position, `(tokens,) int64 -> (tokens, size)`, in the compute dtype.

        Args:
            rows: Returns the first `n` rows of a table, `(n, size)` float32: a sinusoid, a factor that grows with the
                position. Called when the length of the KV cache is known.
        """
        ...

    def rope(self, config: RopeConfig) -> Rope:
        """Return a rotary embedding; equal configurations share one table.

        Raises:
            CheckpointError: CORE-M125, core does not compute its scaling rule.
        """
        ...

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
    ) -> Weights:
        """Return a layer of a kind that core does not know, filled as a linear layer is, in any form of weights. Every
        rank has all of it.

        Args:
            kind: What formats are told that the layer is, as `LayerSite.kind`.
            op: An operation that a plugin brings, and that multiplies with weights.
            in_features: Columns of the weight.
            parts: Checkpoint module name -> rows of the weight, stacked in this order; `{"": rows}` for a layer that
                is one module.
            dims: Further sizes, by the names that kernels of the operation know them by; they get `inputs` and
                `outputs` besides.

        Raises:
            PluginError: CORE-P237, no plugin that is installed brings the operation; CORE-P238, it does not multiply
                with weights; CORE-P201, the kernel that the user named cannot serve here.
        """
        ...

    def operation(self, name: str, **dims: int) -> Callable[..., Any]:
        """Return the form of an operation for these sizes: that of the best kernel, or else its reference form.

        Args:
            name: An operation that a plugin brings, or one of core's.
            dims: Sizes, by the names that kernels of the operation know them by.

        Raises:
            PluginError: CORE-P237, no plugin that is installed brings the operation; CORE-P238, it multiplies with
                weights (ask for `weights`); CORE-P201, the kernel that the user named does not take the sizes.
        """
        ...

    def gated_activation(self, name: str) -> Activation:
        """Return `act(gate) * up` for `name` in `silu`, `gelu`, `gelu_pytorch_tanh`, and the other names of
        `activation`."""
        ...

    def activation(self, name: str) -> Activation:
        """Return `act(x)` for `name` in `relu`, `relu2` (its square), `silu`, `sigmoid`, `tanh`, `gelu`, `gelu_new`,
        `gelu_fast`, `gelu_pytorch_tanh`, `quick_gelu`."""
        ...

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
    ) -> Attention:
        """Return the attention of KV layer `layer`.

        Args:
            prefix: Its module, below which checkpoints may have scales of its KV cache (`k_scale`, `v_scale`,
                `k_proj.output_scale`, ...). Attention that is asked for several times, by layers that run again, has
                them from one module. None: checkpoints have none.
            shared: It reads what another attention keeps, which was asked for with the same arguments, and is called
                without keys and values. Scales are those of the other; what its own module has is not used.
            num_heads, num_kv_heads: Of this rank (`heads`).
            window: Sliding window in tokens: a query at position p sees positions > p - window.
            slopes: One number for each of this rank's heads (ALiBi): `slope * (key position - query position)` is added
                to the scores, behind scale and soft cap. The shape's features then name `alibi`.
            rooted: What is added is `-slope * sqrt(query position - key position)`. The shape's features then name
                `alibi_root` instead.
            sinks: Name of the checkpoint's parameter `(num_heads,)` of sinks: each is the score of a key without a
                value, which takes part in the softmax of every query of its head.
            chunk: Chunk in tokens: a query sees the positions of its own chunk, from p // chunk * chunk on.
            value_dim: Size of a head of the values; None: `head_dim`. The result is `(tokens, heads * value_dim)`.

        Each of these needs an attention feature of the model's shape: `sliding_window`, `softcap`, `sinks`, `chunked`,
        `value_dim`.
        """
        ...

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
    ) -> LatentAttention:
        """Return the multi-head latent attention of KV layer `layer`. The shape's features then name `latent`.

        Args:
            num_heads: Of this rank (`heads`). The latents are whole on every rank.
            latent_dim, rope_dim: Sizes of what a token keeps: its latent, and its rotated key.
            key_dim, value_dim: Sizes of a head's key without the rotated part, and of its value.
            scale: Factor of the scores.
            up: Module that makes keys and values of a latent: `<up>.weight (all heads * (key_dim + value_dim),
                latent_dim)`, the key of each head followed by its value. It is read as any linear layer, in any form
                of weights, and opened to the compute dtype once: nothing is multiplied with its stored form.
            picks: Most positions that a query sees: those that a `picker` of as many chose; None: it sees all. The
                shape's features then name `picks` too.
            prefix: As in `attention`. Keys and values are read from the same bytes, whose scale is that of the keys.
        """
        ...

    def compressed_attention(
        self, layer: int, *, num_heads: int, head_dim: int, scale: float, ratio: int, picks: int | None = None
    ) -> CompressedAttention:
        """Return attention to compressed entries, with KV layer `layer`. The shape's features then name `compressed`,
        and its `block_multiple` is one of `ratio`.

        Args:
            num_heads: Of this rank (`heads`). The entries are whole on every rank.
            head_dim: Size of an entry, which is key and value of all heads.
            scale: Factor of the scores.
            ratio: Tokens that one entry stands for: a query at position p sees the first `(p + 1) // ratio` entries.
            picks: Most entries that a query sees: those that a `picker` of as many and the same `ratio` chose; None: it
                sees all.
        """
        ...

    def picker(
        self, layer: int, *, num_heads: int, key_dim: int, scale: float, picks: int, ratio: int = 1
    ) -> PositionPicker:
        """Return what chooses the positions that the queries of latent layers with `picks` see, or the entries that
        those of compressed ones do.

        The score of a position is `sum over heads of weight * relu(scale * q @ key)`.

        Args:
            layer: Index of its KV cache, of its own: behind those of all attention layers.
            num_heads: Of the index queries; every rank has all of them.
            key_dim: Size of an index key.
            scale: Positive factor of the products.
            picks: Most positions that a query sees.
            ratio: Tokens that one index key stands for. Where it is not 1, what is picked are entries of
                `compressed_attention`, by their numbers, and the index key is that of an entry.
        """
        ...

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
    ) -> Attention:
        """Return attention in which every token of a prompt sees every other. It has no KV layer.

        Args:
            window: A query at position p sees positions from p - window // 2 to p + window // 2.
            bias: Returns `(heads, length, length)` on the device, for a prompt's length: what is added to the scaled
                scores of each query (rows) and key. The shape's features then name `position_bias`.
        """
        ...


class StateMemory(Protocol):
    """Memory for one state of every request: `(step) -> State`."""

    def __call__(self, step: StepInputs) -> State: ...
