"""PLaMo 2: state spaces of heads and attention with windows, by turns, each with norms on both sides and an MLP."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Norm,
    Recurrence,
    shape_of,
)

from core.api import CheckpointError
from core_plugin_plamo.parts import norm, norms, tied

if TYPE_CHECKING:
    from core.api import LayerBuilder
    from core_plugin_plamo.statespace import StateSpace

_POSITIONS = 10 * 1024 * 1024
_HEAD_EPS = 1e-6
_LEAST_RANK = 64


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(
        {"hidden_size_per_head": 128, "num_key_value_heads": 4, "max_position_embeddings": _POSITIONS, **config},
        "Plamo2ForCausalLM",
        {"head_dim": "hidden_size_per_head"},
    )
    given.refuse("image_token_id", "eval_attention_n_bit", "eval_mlp_n_bit", "use_predefined_initial_state")
    given.expect("linear_type", "normal")
    everywhere = given.integers("full_attention_idx")
    layers = tuple(
        _layer(given, _attention(given, index in everywhere) if attends else _mixer(given))
        for index, attends in enumerate(_attending(given))
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=norm(given, "norm"),
        max_positions=given.rope().context,
        dtype=given.dtype(),
        layer="layers.layers.{}",
        tied=tied(given),
    )


def _attending(given: Fields) -> tuple[bool, ...]:
    """Return of each layer whether it attends: one of each `mamba_step`, or the last of few."""
    count, step = given.layers(), given.integer("mamba_step", 2)
    if not given.flag("mamba_enabled", default=True):
        return (True,) * count
    if step < 2:
        raise CheckpointError("CORE-M126", f"'mamba_step' is {step}: of so many layers one attends, so that none else.")
    if count <= step // 2:
        return (*(False,) * (count - 1), True)
    return tuple(index % step == step // 2 for index in range(count))


def _layer(given: Fields, mixer: Attention | Recurrence) -> Layer:
    mlp = MLP(size=given.integer("intermediate_size"), fused="gate_up_proj")
    return Layer(attention=mixer, mlp=mlp, **norms(given))


def _attention(given: Fields, everywhere: bool) -> Attention:
    """Return the attention of a layer; `everywhere`: it sees the whole context."""
    size = given.head_dim()
    # Beside itself a token sees as many as the window has.
    window = None if everywhere else given.integer("attention_window_size", 2048) + 1
    return Attention(
        name="mixer",
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        fused="qkv_proj",
        rope=given.rope(),
        q_norm=_head_norm("q"),
        k_norm=_head_norm("k"),
        window=window,
    )


def _head_norm(part: str) -> HeadNorm:
    return HeadNorm(norm=Norm(name=f"{part}_norm", eps=_HEAD_EPS), over="own", parameter=f"{part}_weight")


def _mixer(given: Fields) -> Recurrence:
    size = given.integer("hidden_size")
    heads, head_dim, state = given.integer("mamba_num_heads", 64), given.head_dim(), given.integer("mamba_d_state", 64)
    rank, width = max(_LEAST_RANK, size // 16), given.integer("mamba_d_conv", 4)
    hidden, inner = ("hidden_size", size), ("mamba_num_heads * hidden_size_per_head", heads * head_dim)
    weights = (
        ("in_proj", (("2 * mamba_num_heads * hidden_size_per_head", 2 * heads * head_dim), hidden)),
        ("conv1d", (inner, ("1", 1), ("mamba_d_conv", width))),
        ("bcdt_proj", (("2 * mamba_d_state + hidden_size / 16", rank + 2 * state), inner)),
        ("dt_proj", (("mamba_num_heads", heads), ("hidden_size / 16", rank))),
        ("out_proj", (hidden, inner)),
    )
    eps = given.number("rms_norm_eps", 1e-6, least=0.0)
    made = partial(_made, heads=heads, head_dim=head_dim, state_dim=state, rank=rank, width=width, eps=eps)
    return Recurrence(name="mixer", make=made, weights=weights)


def _made(build: LayerBuilder, hidden_size: int, path: str, **sizes: Any) -> StateSpace:
    from core_plugin_plamo.statespace import Sizes, StateSpace

    return StateSpace(build, hidden_size, path, Sizes(**sizes))


shape = shape_of(read)


class Plamo2(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
