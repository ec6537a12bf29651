"""The facts that the engine needs before any weight is read, from a description. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from core.api import ModelShape, RopeConfig, WeightShape
from core_plugin_decoder.description import (
    MLP,
    Attention,
    Decoder,
    HeadNorm,
    LatentAttention,
    Layer,
    Linear,
    Mixture,
    Norm,
)
from core_plugin_decoder.joined import as_stored

Dim = tuple[str, int]

_NO_ATTENTION = (1, 1, 64)
"""Heads and their size, of a model that has no attention: any backend takes them, and none computes with them."""


def shape_of(read: Callable[[Mapping[str, Any]], Decoder]) -> Callable[[dict[str, Any]], ModelShape]:
    """Return the `shape` of a `ModelSpec` whose configurations `read` describes."""

    def shape(config: dict[str, Any]) -> ModelShape:
        """Return the facts that the engine needs before any weight is read."""
        return described(as_stored(read(config), config))

    return shape


def described(decoder: Decoder) -> ModelShape:
    """Return the shape of a decoder."""
    attentions = decoder.attentions
    heads = [(one.heads, one.kv_heads, one.head_dim) for one in attentions] or [_NO_ATTENTION]
    ropes: list[RopeConfig] = []
    for attention in attentions:
        index = attention.index if isinstance(attention, LatentAttention) else None
        for rope in (attention.rope, None if index is None else index.rope):
            if rope is not None and rope not in ropes:
                ropes.append(rope)
    return ModelShape(
        vocab_size=decoder.vocab_size,
        max_positions=decoder.max_positions,
        num_layers=len(decoder.layers),
        hidden_size=decoder.hidden_size,
        num_heads=heads[0][0],
        num_kv_heads=heads[0][1],
        head_dim=heads[0][2],
        head_dims=frozenset(attention.head_dim for attention in attentions),
        latents=frozenset((one.latent_dim, one.rope_dim) for one in attentions if isinstance(one, LatentAttention)),
        features=frozenset(_features(decoder)),
        dtype=decoder.dtype,
        pooling=decoder.pooling,
        ropes=tuple(ropes),
        weights=tuple(_weights(decoder)),
        layers_key=decoder.layers_key,
        recurrent=decoder.recurrent,
    )


def _features(decoder: Decoder) -> Iterator[str]:
    """Yield the attention features that the layers need."""
    for attention in decoder.attentions:
        if isinstance(attention, LatentAttention):
            yield "latent"
            if attention.picks is not None:
                yield "picks"
            continue
        wanted = {
            "sliding_window": attention.window,
            "chunked": attention.chunk,
            "softcap": attention.softcap,
            "alibi_root" if attention.rooted else "alibi": attention.slopes,
            "sinks": attention.sinks,
        }
        if attention.mix is not None and decoder.passes > 1:
            wanted["sliding_window"] = attention.mix.window
        yield from (name for name, value in wanted.items() if value is not None)
    if not decoder.causal:
        yield "bidirectional"


def _weights(decoder: Decoder) -> Iterator[WeightShape]:
    """Yield the sizes of what all checkpoints of this description have: of all layers together, or layer by layer."""
    hidden, turned = ("hidden_size", decoder.hidden_size), decoder.transposes

    def matrix(path: str, dims: tuple[Dim, ...]) -> WeightShape:
        name = f"{path}.weight".removeprefix(f"{decoder.root}.")
        swapped = any(name.endswith(glob.removeprefix("*")) for glob in turned)
        return WeightShape(name=name, dims=dims[::-1] if swapped else dims)

    layers = [
        {name: dims for part in layer.parts for name, dims in _of_layer(part, hidden).items()}
        for layer in decoder.layers
    ]
    common = {name for name, dims in layers[0].items() if all(layer.get(name) == dims for layer in layers)}
    yield from (matrix(f"{decoder.layer}.{name}", layers[0][name]) for name in layers[0] if name in common)
    for index, layer in enumerate(layers):
        yield from (
            matrix(f"{decoder.layer.format(index)}.{name}", layer[name]) for name in layer if name not in common
        )
    vocabulary = ("vocab_size", decoder.vocab_size)
    width = hidden if decoder.embed_size is None else ("word_embed_proj_dim", decoder.embed_size)
    yield matrix(decoder.path(decoder.embed), (vocabulary, width))
    if decoder.pooling is None or decoder.score.tokens:
        yield matrix(decoder.head, (vocabulary, width))
    last = decoder.final_norm
    # Tensors are told by how their names end: one that a layer has as well says nothing of the last norm.
    if (
        last is not None
        and last.weight
        and not any(f".{name}".endswith(f".{last.name}") for one in layers for name in one)
    ):
        yield matrix(decoder.path(last.name), (hidden,))


def _of_layer(layer: Layer, hidden: Dim) -> dict[str, tuple[Dim, ...]]:
    """Return module -> dimensions of its weight."""
    norms = (layer.before_attention, layer.after_attention, layer.before_mlp, layer.after_mlp, layer.before_beside)
    found: dict[str, tuple[Dim, ...]] = {norm.name: (hidden,) for norm in norms if norm is not None and norm.weight}
    attention = layer.attention
    if isinstance(attention, Attention):
        found |= {f"{attention.name}.{name}": dims for name, dims in _of_attention(attention, hidden).items()}
    elif isinstance(attention, LatentAttention):
        found |= {f"{attention.name}.{name}": dims for name, dims in _of_latent(attention, hidden).items()}
    for one in layer.recurrences:
        found |= {f"{one.name}.{name}": dims for name, dims in one.weights}
    if isinstance(layer.mlp, MLP):
        found |= _of_mlp(layer.mlp, hidden)
    for mixture in (layer.mlp, layer.aside):
        if isinstance(mixture, Mixture):
            # The router alone: how the weights of experts are stored differs among checkpoints.
            experts = mixture.experts + mixture.identities
            found[mixture.path("", mixture.router)] = (("experts", experts), hidden)
            if mixture.latent is not None:
                latent = ("moe_latent_size", mixture.latent)
                found[mixture.path("", mixture.narrow)] = (latent, hidden)
                found[mixture.path("", mixture.widen)] = (hidden, latent)
    found |= {one.name: (hidden, hidden) for one in (attention, layer.mlp) if isinstance(one, Linear)}
    return found


def _of_mlp(mlp: MLP, hidden: Dim) -> dict[str, tuple[Dim, ...]]:
    """Return module -> dimensions of its weight, below the layer."""
    found: dict[str, tuple[Dim, ...]] = {}
    inner = ("intermediate_size", mlp.size)
    below = f"{mlp.name}." if mlp.name else ""
    if mlp.fused is not None:
        found[f"{below}{mlp.fused}"] = (("2 * intermediate_size", 2 * mlp.size), hidden)
    else:
        names = (mlp.up,) if mlp.gate is None else (mlp.gate, mlp.up)
        found |= {f"{below}{name}": (inner, hidden) for name in names}
    found[f"{below}{mlp.down}"] = (hidden, inner)
    return found


def _of_attention(attention: Attention, hidden: Dim) -> dict[str, tuple[Dim, ...]]:
    size = attention.head_dim
    queries = ("num_attention_heads * head_dim", attention.heads * size)
    keys = ("num_key_value_heads * head_dim", attention.kv_heads * size)
    values, results = keys, queries
    if attention.value_dim is not None:
        values = ("num_key_value_heads * v_head_dim", attention.kv_heads * attention.value_dim)
        results = ("num_attention_heads * v_head_dim", attention.heads * attention.value_dim)
    found: dict[str, tuple[Dim, ...]]
    if attention.fused is not None:
        text = "(num_attention_heads + 2 * num_key_value_heads) * head_dim"
        found = {attention.fused: ((text, queries[1] + 2 * keys[1]), hidden)}
    else:
        stored = ("2 * num_attention_heads * head_dim", 2 * queries[1]) if attention.gated_queries else queries
        rows = (stored, keys, values)[: 1 if attention.fused_kv is not None else attention.parts]
        found = {name: (given, hidden) for name, given in zip(attention.projections, rows)}
    if attention.fused_kv is not None:
        found[attention.fused_kv] = (("2 * num_key_value_heads * head_dim", 2 * keys[1]), hidden)
    found[attention.output] = (hidden, results)
    if attention.gate is not None:
        found[attention.gate] = (queries, hidden)
    key_norm = attention.k_norm if attention.shares is None else None
    for head_norm, heads in ((attention.q_norm, queries), (key_norm, keys)):
        found |= _of_head_norm(head_norm, size, heads)
    return found


def _of_latent(attention: LatentAttention, hidden: Dim) -> dict[str, tuple[Dim, ...]]:
    heads = attention.heads
    queries = ("num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)", heads * attention.head_dim)
    latent, query = ("kv_lora_rank", attention.latent_dim), ("q_lora_rank", attention.query_dim or 0)
    up = ("num_attention_heads * (qk_nope_head_dim + v_head_dim)", heads * (attention.key_dim + attention.value_dim))
    found: dict[str, tuple[Dim, ...]] = {
        "kv_a_proj_with_mqa": (("kv_lora_rank + qk_rope_head_dim", attention.kept), hidden),
        "kv_a_layernorm": (latent,),
        "kv_b_proj": (up, latent),
        attention.output: (hidden, ("num_attention_heads * v_head_dim", heads * attention.value_dim)),
    }
    if attention.index is not None:
        index, size = attention.index, ("index_head_dim", attention.index.key_dim)
        found |= {
            f"{index.name}.wq_b": (("index_n_heads * index_head_dim", index.heads * index.key_dim), query),
            f"{index.name}.wk": (size, hidden),
            f"{index.name}.k_norm": (size,),
            f"{index.name}.weights_proj": (("index_n_heads", index.heads), hidden),
        }
    if attention.query_dim is None:
        return found | {"q_proj": (queries, hidden)}
    return found | {"q_a_proj": (query, hidden), "q_a_layernorm": (query,), "q_b_proj": (queries, query)}


def _of_head_norm(given: HeadNorm | None, size: int, heads: Dim) -> dict[str, tuple[Dim, ...]]:
    norm: Norm | None = None if given is None else given.norm
    if given is None or norm is None or not norm.weight or given.stacked is not None or given.parameter is not None:
        return {}
    if given.over == "own" and not given.flat:
        return {norm.name: (("heads", heads[1] // size), ("head_dim", size))}
    return {norm.name: (("head_dim", size),) if given.over == "head" else (heads,)}
