"""Model plugins: what they say about a configuration, and how they build and run.

A model asks a `LayerBuilder` for layers by role; core decides quantization, sharding and kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from core.api.rotary import RopeConfig  # ModelShape's fields need it at run time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from core.api.attention import AttentionPlan


class PoolingDense(BaseModel):
    """A linear layer behind pooling, with weights of its own (`linear.weight`, perhaps `linear.bias`).

    Attributes:
        folder: Where its weights are, as a folder beside the checkpoint's files.
        out_features: Size of what it gives.
        activation: What follows it.
    """

    model_config = ConfigDict(frozen=True)

    folder: str
    out_features: int
    activation: Literal["none", "tanh", "relu", "gelu", "silu", "sigmoid"] = "none"


class PoolingShape(BaseModel):
    """What a model that gives vectors instead of tokens does. Torch-free.

    Attributes:
        task: `embed`: vectors to compare; `classify`: one number per label.
        method: How hidden states become one vector: their `mean`, the greatest of each number (`max`), the first
            (`cls`), the `last`; `all` keeps each. Embeddings of `all` are compared token by token (late interaction).
        normalize: Whether embeddings get length 1 unless the request says otherwise.
        bidirectional: Tokens see what follows them, so that nothing can be computed before the whole prompt is there.
        labels: Names of the classes, in the order of the numbers; empty for embeddings.
        activation: What turns the numbers of the classes into probabilities.
        dimensions: Lengths to which embeddings may be cut (Matryoshka).
        any_dimensions: Whether embeddings may be cut to every length.
        dense: Layers behind pooling, in order.
        size: Numbers of an embedding, where they are not as many as the model's hidden states have; 0 otherwise.
        prompts: What is put in front of a text to be embedded, by the name of its purpose (`query`, `document`, ...).
        default_prompt: The purpose of texts that name none; empty: nothing is put in front of them.
    """

    model_config = ConfigDict(frozen=True)

    task: Literal["embed", "classify"] = "embed"
    method: Literal["mean", "max", "cls", "last", "all"] = "mean"
    normalize: bool = True
    bidirectional: bool = False
    labels: tuple[str, ...] = ()
    activation: Literal["none", "sigmoid", "softmax"] = "none"
    dimensions: tuple[int, ...] = ()
    any_dimensions: bool = False
    dense: tuple[PoolingDense, ...] = ()
    size: int = 0
    prompts: dict[str, str] = {}
    default_prompt: str = ""


class WeightShape(BaseModel):
    """A tensor of the checkpoint whose size follows from the configuration.

    Attributes:
        name: How the tensor's name ends, from the beginning of a module's name on, with `{}` for a layer's number
            (`layers.{}.mlp.up_proj.weight`).
        dims: Key of the configuration (or how it follows from several) and size, for each dimension as the checkpoint
            stores it.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    dims: tuple[tuple[str, int], ...]


class ModelShape(BaseModel):
    """Facts of one checkpoint that the engine needs before any weight is read. Torch-free.

    Attributes:
        vocab_size: Rows of the output projection.
        max_positions: Longest context that the model can be started with, in tokens: that of its rotary scaling.
        num_layers: Layers with attention.
        hidden_size: Size of a hidden state.
        num_heads, num_kv_heads, head_dim: Attention geometry.
        features: Attention features it needs (`sliding_window`, `softcap`, `sinks`, `chunked`, `value_dim`,
            `bidirectional`, `position_bias`).
        dtype: The checkpoint's own dtype (`bfloat16`), a hint for `--dtype auto`.
        pooling: What it gives instead of tokens; None for a model that generates.
        ropes: Rotary embeddings that the model asks its layer builder for. Core refuses those that it cannot compute
            before anything is loaded.
        weights: Tensors that its checkpoints have, unless they store them in another form. Core compares them with the
            files before anything is built; without them only the number of layers is held against the files.
        layers_key: Key of the configuration that gives the number of layers.
    """

    model_config = ConfigDict(frozen=True)

    vocab_size: int
    max_positions: int
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    features: frozenset[str] = frozenset()
    dtype: str = "bfloat16"
    pooling: PoolingShape | None = None
    ropes: tuple[RopeConfig, ...] = ()
    weights: tuple[WeightShape, ...] = ()
    layers_key: str = "num_hidden_layers"

    @property
    def default_positions(self) -> int:
        """Context to start with where the user names none, in tokens."""
        shorter = [rope.default_context for rope in self.ropes if rope.default_context < rope.context]
        return min([self.max_positions, *shorter])

    @property
    def context_bound(self) -> bool:
        """Whether keys and values of a token depend on the context that the engine is started with."""
        return any(rope.by_context for rope in self.ropes)


class Linear(Protocol):
    """`(tokens, in_features) -> (tokens, sum of out_features)`."""

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

    Shapes: `q (tokens, heads, head_dim)`, `k, v (tokens, kv_heads, head_dim)` -> `(tokens, heads * head_dim)`.
    """

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, step: StepInputs) -> Tensor: ...


class Embedding(Protocol):
    """`(tokens,) int64 -> (tokens, hidden)`."""

    def __call__(self, token_ids: Tensor) -> Tensor: ...


class Activation(Protocol):
    """Gated: `(tokens, 2 * size)` as `[gate, up]` -> `(tokens, size)`. Plain: element by element."""

    def __call__(self, x: Tensor) -> Tensor: ...


class StepInputs(Protocol):
    """What one step gives to `Model.forward`.

    Attributes:
        token_ids: `(tokens,)` int64, on the device.
        positions: `(tokens,)` int64, position of each token in its request.
        plans: The attention backend's plans for this step, one per cache group: for layers that share a block table.
        plan: The first of them.

    Steps of a pooling engine also have `token_types`, `(tokens,)` int64 or None: 1 for tokens of the second text of a
    pair, 0 for all others; None when all are 0. And `arrays`: for each request of the step, in order, the tensors that
    came with its prompt, by name, on the device; an empty tuple when none of them has any.
    """

    token_ids: Tensor
    positions: Tensor
    plans: Sequence[AttentionPlan]

    @property
    def plan(self) -> AttentionPlan: ...


class LayerBuilder(Protocol):
    """Hands out layers and records which checkpoint tensors fill them.

    Layers compare what they are called with to the sizes they were built for, and to the compute dtype, before any
    plugin sees it; what differs is a `PluginError` CORE-P170.

    Every `prefix` is the module path in the Hugging Face checkpoint, so that a tensor
    `<prefix>.weight` lands in the layer without a rule.

    Attributes:
        options: The model plugin's own options.
    """

    @property
    def options(self) -> Mapping[str, Any]: ...

    def embedding(self, vocab_size: int, hidden_size: int, prefix: str) -> Embedding:
        """Return the token embedding, filled from `<prefix>.weight (vocab_size, hidden_size)`."""
        ...

    def lm_head(self, vocab_size: int, hidden_size: int, prefix: str, tied_to: Embedding | None = None) -> Linear:
        """Return the output projection, filled from `<prefix>.weight (vocab_size, hidden_size)`.

        Args:
            tied_to: An embedding of this builder whose weights it uses. `<prefix>.weight` is then left out, also where
                the checkpoint has it.
        """
        ...

    def linear(self, in_features: int, out_features: int, prefix: str, *, bias: bool = False) -> Linear:
        """Return a linear layer, filled from `<prefix>.weight (out_features, in_features)` and `<prefix>.bias`."""
        ...

    def merged_linear(self, in_features: int, parts: Mapping[str, int], prefix: str, *, bias: bool = False) -> Linear:
        """One product for several checkpoint tensors.

        Args:
            parts: Checkpoint module name -> output features, in the order of the concatenated output,
                for example `{"q_proj": 576, "k_proj": 192, "v_proj": 192}` under prefix `...self_attn`.
        """
        ...

    def rms_norm(self, size: int, eps: float, prefix: str) -> Norm:
        """Return an RMS norm, filled from `<prefix>.weight (size,)`."""
        ...

    def layer_norm(self, size: int, eps: float, prefix: str, *, bias: bool = True) -> Norm:
        """Return a layer norm, filled from `<prefix>.weight (size,)` and `<prefix>.bias`."""
        ...

    def rope(self, config: RopeConfig) -> Rope:
        """Return a rotary embedding; equal configurations share one table.

        Raises:
            CheckpointError: CORE-M125, core does not compute its scaling rule.
        """
        ...

    def gated_activation(self, name: str) -> Activation:
        """Return `act(gate) * up` for `name` in `silu`, `gelu`, `gelu_pytorch_tanh`."""
        ...

    def activation(self, name: str) -> Activation:
        """Return `act(x)` for `name` in `relu`, `silu`, `gelu`, `gelu_new`, `gelu_pytorch_tanh`."""
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
    ) -> Attention:
        """Return the attention of KV layer `layer`.

        Args:
            window: Sliding window in tokens: a query at position p sees positions > p - window.
            sinks: Name of the checkpoint's parameter `(num_heads,)` of sinks: each is the score of a key without a
                value, which takes part in the softmax of every query of its head.
            chunk: Chunk in tokens: a query sees the positions of its own chunk, from p // chunk * chunk on.
            value_dim: Size of a head of the values; None: `head_dim`. The result is `(tokens, heads * value_dim)`.

        Each of these needs an attention feature of the model's shape: `sliding_window`, `softcap`, `sinks`, `chunked`,
        `value_dim`.
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
        bias: Callable[[int], Tensor] | None = None,
    ) -> Attention:
        """Return attention in which every token of a prompt sees every other. It has no KV layer.

        Args:
            window: A query at position p sees positions from p - window // 2 to p + window // 2.
            bias: Returns `(heads, length, length)` for a prompt's length: what is added to the scaled scores of
                each query (rows) and key. The shape's features then name `position_bias`.
        """
        ...


class WeightRules(BaseModel):
    """How checkpoint names become parameter names, as data.

    Attributes:
        rename: Prefix replacements, first match wins.
        skip: Name globs that are left out on purpose (`*.rotary_emb.inv_freq`, a tied `lm_head.weight`).
        transpose: Name globs of matrices that the checkpoint stores as `(in, out)`, not as `(out, in)`.
        kv_scales: Path of a KV layer's attention module after renaming, `{}` for the layer's number, below which
            checkpoints may have scales of a KV cache (`k_scale`, `v_scale`, `k_proj.output_scale`, ...); None where
            none are known.
    """

    model_config = ConfigDict(frozen=True)

    rename: tuple[tuple[str, str], ...] = ()
    skip: tuple[str, ...] = ()
    transpose: tuple[str, ...] = ()
    kv_scales: str | None = None


class Model(Protocol):
    """One architecture. `impl` of a `ModelSpec` names the class."""

    def __init__(self, config: Mapping[str, object], build: LayerBuilder) -> None: ...

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(tokens, hidden)`."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, vocab)`, any float dtype."""
        ...

    @classmethod
    def weight_rules(cls, config: Mapping[str, object]) -> WeightRules:
        """Return how the names of a checkpoint with this configuration become names of parameters."""
        ...


class ChatTemplates(Protocol):
    """The chat templates of a model family, for checkpoints that come without one. Torch-free.

    Attributes:
        names: What users may ask for with `--chat-template NAME`.
    """

    names: Sequence[str]

    def source(self, name: str) -> str:
        """Return the Jinja source of one of `names`."""
        ...

    def suited(self, config: Mapping[str, object], tokens: frozenset[str]) -> str | None:
        """Return the name of the template that a checkpoint was made for; None where that cannot be told.

        Args:
            config: The checkpoint's `config.json`.
            tokens: Texts of the tokens that were added to its vocabulary.
        """
        ...


class Classifies(Protocol):
    """Optional part of a model: a head on what pooling gives. A model that only pools needs no `logits`."""

    def classify(self, pooled: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, labels)`, any float dtype."""
        ...


def features_of(windows: Sequence[int | None], softcap: float | None) -> frozenset[str]:
    """Return the attention features that layers with these windows and this soft cap need."""
    wanted = {"sliding_window"} if any(window is not None for window in windows) else set()
    if softcap is not None:
        wanted.add("softcap")
    return frozenset(wanted)
