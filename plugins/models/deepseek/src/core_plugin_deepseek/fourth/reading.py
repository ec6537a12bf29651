"""Settings of a DeepSeek V4 model, read from its configuration. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import lcm
from typing import Any

from core_plugin_decoder import Fields

from core.api import CheckpointError, ModelShape, RopeConfig, Routing, WeightShape, config_names, config_object
from core.api.rotary import rope_config

WINDOW, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
_RATIOS = {0: WINDOW, 4: SPARSE, 128: HEAVY}
"""`compress_ratios` of the makers' configurations."""

_TABLE, _CHOSEN = "hash_moe", "moe"
_USUAL: Mapping[str, Any] = {
    "head_dim": 512,
    "q_lora_rank": 1024,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 6,
    "routed_scaling_factor": 1.5,
    "num_hash_layers": 3,
    "compress_rope_theta": 160000.0,
    "max_position_embeddings": 1048576,
    "sliding_window": 128,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
}
"""Defaults of transformers for keys that a configuration lacks."""


@dataclass(frozen=True)
class Compression:
    """The compressed entries of a layer.

    Attributes:
        ratio: Tokens of an entry.
        overlaps: An entry is made of the tokens before its own as well, as many again.
        picks: Most entries that a query sees, chosen by an index; None: all.
        index_heads, index_dim: Of the index.
    """

    ratio: int
    overlaps: bool = False
    picks: int | None = None
    index_heads: int = 0
    index_dim: int = 0


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        compression: None: it sees its window alone.
        rope: Of queries, of what the window keeps, and of entries.
        table: Whether its experts are named by a table of token ids.
    """

    compression: Compression | None
    rope: RopeConfig
    table: bool


@dataclass(frozen=True)
class Fourth:
    """A decoder.

    Attributes:
        query_dim: Size of the queries' latent.
        groups, group_dim: Of the output projection: groups of heads, and what each becomes.
        limit: At most so large are gate and up of experts.
        streams, rounds, stream_eps: Of hyper-connections: hidden states of a token, rounds that make a matrix doubly
            stochastic, and what is added to divisors.
    """

    vocab_size: int
    hidden_size: int
    layers: tuple[Layer, ...]
    heads: int
    head_dim: int
    query_dim: int
    window: int
    groups: int
    group_dim: int
    experts: int
    expert_size: int
    routing: Routing
    limit: float
    streams: int
    rounds: int
    stream_eps: float
    eps: float
    max_positions: int
    dtype: str

    @property
    def block_multiple(self) -> int:
        """Number that the tokens of a KV block are a multiple of."""
        return lcm(*(layer.compression.ratio for layer in self.layers if layer.compression is not None))


def read(config: Mapping[str, Any]) -> Fourth:
    """Describe the decoder of a configuration.

    Raises:
        CheckpointError: CORE-M126, it asks for something that nobody computes.
    """
    given = Fields({**_USUAL, **config}, "DeepseekV4ForCausalLM")
    for name, value in (("hidden_act", "silu"), ("scoring_func", "sqrtsoftplus"), ("n_shared_experts", 1)):
        given.expect(name, value)
    given.expect("norm_topk_prob", True)
    given.refuse("attention_bias", "mlp_bias", "tie_word_embeddings")
    main, compressed = _ropes(given)
    kinds, tables = _kinds(given), _tables(given)
    layers = tuple(
        Layer(_compression(given, kind), main if kind == WINDOW else compressed, table)
        for kind, table in zip(kinds, tables, strict=True)
    )
    heads, groups, head_dim = given.heads(), given.integer("o_groups"), given.head_dim()
    if heads % groups:
        raise CheckpointError("CORE-M126", f"{heads} heads are not {groups} groups ('o_groups').")
    experts = given.integer("n_routed_experts")
    return Fourth(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        heads=heads,
        head_dim=head_dim,
        query_dim=given.integer("q_lora_rank"),
        window=given.integer("sliding_window"),
        groups=groups,
        group_dim=given.integer("o_lora_rank"),
        experts=experts,
        expert_size=given.integer("moe_intermediate_size"),
        routing=Routing(
            top_k=given.integer("num_experts_per_tok", most=experts),
            score="sqrt_softplus",
            renormalize=True,
            eps=1e-20,
            factor=given.number("routed_scaling_factor", 1.5),
        ),
        limit=given.number("swiglu_limit", 10.0, least=0.0),
        streams=given.integer("hc_mult"),
        rounds=given.integer("hc_sinkhorn_iters"),
        stream_eps=given.number("hc_eps", 1e-6, least=0.0),
        eps=given.number("rms_norm_eps", 1e-6, least=0.0),
        max_positions=compressed.context if set(kinds) - {WINDOW} else main.context,
        dtype=given.dtype(),
    )


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    found = read(config)
    compresses = any(layer.compression for layer in found.layers)
    return ModelShape(
        vocab_size=found.vocab_size,
        max_positions=found.max_positions,
        num_layers=len(found.layers),
        hidden_size=found.hidden_size,
        num_heads=found.heads,
        num_kv_heads=1,
        head_dim=found.head_dim,
        features=frozenset({"compressed"}) if compresses else frozenset(),
        dtype=found.dtype,
        ropes=_distinct(layer.rope for layer in found.layers),
        weights=tuple(_weights(found)),
        recurrent=True,
        block_multiple=found.block_multiple,
    )


def _weights(found: Fourth) -> Iterator[WeightShape]:
    """Yield sizes of what every layer has."""
    hidden, latent = ("hidden_size", found.hidden_size), ("q_lora_rank", found.query_dim)
    head = ("head_dim", found.head_dim)
    layer = "layers.{}."
    yield WeightShape(name=f"{layer}attn.wq_a.weight", dims=(latent, hidden))
    heads = ("num_attention_heads * head_dim", found.heads * found.head_dim)
    yield WeightShape(name=f"{layer}attn.wq_b.weight", dims=(heads, latent))
    yield WeightShape(name=f"{layer}attn.wkv.weight", dims=(head, hidden))
    yield WeightShape(name=f"{layer}ffn.gate.weight", dims=(("n_routed_experts", found.experts), hidden))
    yield WeightShape(name="head.weight", dims=(("vocab_size", found.vocab_size), hidden))


def _ropes(given: Fields) -> tuple[RopeConfig, RopeConfig]:
    """Return the rotation of layers that see a window alone, and that of all others."""
    config = given.config
    stored = config_object(config, "rope_scaling") or config_object(config, "rope_parameters")
    share = given.number("partial_rotary_factor", given.number("qk_rope_head_dim", 64) / given.head_dim(), most=1.0)
    own = {"partial_rotary_factor": share, "rope_type": "default"}
    if "main" in stored and "compress" in stored:
        main, compressed = ({**own, **config_object(stored, name)} for name in ("main", "compress"))
    else:
        rule = {key: value for key, value in stored.items() if key not in ("main", "compress", "rope_theta")}
        main = own | {"rope_theta": given.number("rope_theta", 10000.0, most=1e12)}
        compressed = {**own, "rope_type": rule.get("type", "default"), **rule}
        compressed["rope_theta"] = given.number("compress_rope_theta", 160000.0, most=1e12)
    if compressed["rope_type"] == "yarn":
        compressed.setdefault("attention_factor", 1.0)
    return _rope(given, main), _rope(given, compressed)


def _rope(given: Fields, parameters: Mapping[str, Any]) -> RopeConfig:
    """Return a rotation of the last dimensions of a head, as of a head of these alone."""
    config = {"rope_parameters": parameters, "max_position_embeddings": given.positions()}
    rope = rope_config(config, given.head_dim(), interleaved=True)
    return rope.model_copy(update={"head_dim": rope.rotary_dim})


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return the kind of attention of each layer: as named, by `compress_ratios`, or as transformers alternates."""
    count, named, ratios = given.layers(), config_names(given.config, "layer_types"), given.integers("compress_ratios")
    if named is None and ratios:
        # The makers' list goes on with the layers that predict further tokens.
        named = tuple(_RATIOS.get(ratio, str(ratio)) for ratio in ratios[:count])
    if named is None:
        named = tuple(HEAVY if index < 2 or index % 2 == 0 else SPARSE for index in range(count))
    if len(named) != count or not set(named) <= {WINDOW, SPARSE, HEAVY}:
        kinds = f"{WINDOW} (0), {SPARSE} (4) or {HEAVY} (128)"
        text = f"'layer_types' ('compress_ratios') must name {count} layers as {kinds}."
        raise CheckpointError("CORE-M126", text)
    return named


def _tables(given: Fields) -> tuple[bool, ...]:
    """Return which layers have experts by a table of token ids."""
    count, named = given.layers(), config_names(given.config, "mlp_layer_types")
    if named is None:
        first = given.count("num_hash_layers", 3)
        return tuple(index < first for index in range(count))
    if len(named) != count or not set(named) <= {_TABLE, _CHOSEN}:
        raise CheckpointError("CORE-M126", f"'mlp_layer_types' must name {count} layers as {_TABLE} or {_CHOSEN}.")
    return tuple(one == _TABLE for one in named)


def _compression(given: Fields, kind: str) -> Compression | None:
    rates = config_object(given.config, "compress_rates")
    if kind == WINDOW:
        return None
    if kind == HEAVY:
        own = rates.get(kind, given.config.get("compress_rate_hca", 128))
        return Compression(Fields({kind: own}).integer(kind))
    own = rates.get(kind, given.config.get("compress_rate_csa", 4))
    return Compression(
        Fields({kind: own}).integer(kind),
        overlaps=True,
        picks=given.integer("index_topk"),
        index_heads=given.integer("index_n_heads"),
        index_dim=given.integer("index_head_dim"),
    )


def _distinct(ropes: Iterable[RopeConfig]) -> tuple[RopeConfig, ...]:
    found: list[RopeConfig] = []
    for rope in ropes:
        if rope not in found:
            found.append(rope)
    return tuple(found)
