"""Shapes: facts about a checkpoint's model that are known before any weight is read. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from core.api.rotary import RopeConfig  # ModelShape's fields need it at run time

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """Shape of a model that gives vectors instead of tokens. Torch-free.

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
            (`layers.{}.mlp.up_proj.weight`), or with the number of a layer that has sizes of its own.
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
        num_layers: Layers, with attention or without.
        hidden_size: Size of a hidden state.
        num_heads, num_kv_heads, head_dim: Attention geometry.
        head_dims: Sizes of heads of all layers, where some have others than `head_dim`.
        latents: Sizes of latents and of rotated keys that layers with latent attention keep of a token.
        features: Attention features it needs (`sliding_window`, `softcap`, `alibi`, `alibi_root`, `sinks`, `chunked`,
            `value_dim`, `latent`, `picks`, `compressed`, `bidirectional`, `position_bias`).
        dtype: The checkpoint's own dtype (`bfloat16`), a hint for `--dtype auto`.
        pooling: What it gives instead of tokens; None for a model that generates.
        ropes: Rotary embeddings that the model asks its layer builder for. Core refuses those that it cannot compute
            before anything is loaded.
        weights: Tensors that its checkpoints have, unless they store them in another form. Core compares them with the
            files before anything is built; without them only the number of layers is held against the files.
        layers_key: Key of the configuration that gives the number of layers.
        recurrent: Whether layers keep states (`LayerBuilder.state`). What a request's blocks hold is then not all that
            decides its next token.
        block_multiple: Tokens of a KV block are a multiple of this: of what one compressed entry stands for
            (`LayerBuilder.compressed_attention`).
    """

    model_config = ConfigDict(frozen=True)

    vocab_size: int
    max_positions: int
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    head_dims: frozenset[int] = frozenset()
    latents: frozenset[tuple[int, int]] = frozenset()
    features: frozenset[str] = frozenset()
    dtype: str = "bfloat16"
    pooling: PoolingShape | None = None
    ropes: tuple[RopeConfig, ...] = ()
    weights: tuple[WeightShape, ...] = ()
    layers_key: str = "num_hidden_layers"
    recurrent: bool = False
    block_multiple: int = 1

    @property
    def default_positions(self) -> int:
        """Context to start with where the user names none, in tokens."""
        shorter = [rope.default_context for rope in self.ropes if rope.default_context < rope.context]
        return min([self.max_positions, *shorter])

    @property
    def context_bound(self) -> bool:
        """Whether keys and values of a token depend on the context that the engine is started with."""
        return any(rope.by_context for rope in self.ropes)


def features_of(windows: Sequence[int | None], softcap: float | None) -> frozenset[str]:
    """Return the attention features that layers with these windows and this soft cap need."""
    wanted = {"sliding_window"} if any(window is not None for window in windows) else set()
    if softcap is not None:
        wanted.add("softcap")
    return frozenset(wanted)
