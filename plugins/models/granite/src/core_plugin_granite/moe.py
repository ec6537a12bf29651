"""Granite with mixtures of experts in every layer, perhaps beside an MLP that all tokens share, or with windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from core_plugin_decoder import MLP, CausalLM, Decoder, Fields, Mixture, shape_of

from core.api import Routing
from core_plugin_granite.family import read as read_granite
from core_plugin_granite.windowed import read as read_windowed


class _Names(NamedTuple):
    """What checkpoints call a mixture's modules, and the two tensors that hold the weights of all experts."""

    router: str
    module: str
    widen: str
    down: str
    ending: str

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        """Return the rules that take these tensors apart."""
        names = (self.widen, self.down)
        return tuple((f".{self.module}.{name}{self.ending}", f".{self.module}.{{}}.{name}.weight") for name in names)


FIRST = _Names("block_sparse_moe.router.layer", "block_sparse_moe", "input_linear", "output_linear", ".weight")
_WINDOWED = _Names("block_sparse_moe.router", "block_sparse_moe.experts", "gate_up_proj", "down_proj", "")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GraniteMoeForCausalLM")
    given.refuse("mlp_bias")
    windowed = given.architecture.startswith("GraniteMoeSWA")
    names = _WINDOWED if windowed else FIRST
    decoder, experts = (read_windowed if windowed else read_granite)(config), mixture(given, names, _shared(given))
    return replace(
        decoder,
        layers=tuple(replace(layer, mlp=experts) for layer in decoder.layers),
        tied=given.flag("tie_word_embeddings"),
        experts=names.stored,
    )


def _shared(given: Fields) -> MLP | None:
    """Return the MLP beside the experts, of the architectures that may have one."""
    shares = given.architecture.startswith(("GraniteMoeShared", "GraniteMoeSWA"))
    return shared_mlp(given) if shares and given.config.get("shared_intermediate_size") else None


def shared_mlp(given: Fields) -> MLP:
    """Return the MLP that all tokens share."""
    size, activation = given.integer("shared_intermediate_size", 1024), given.text("hidden_act", "silu")
    return MLP(size=size, activation=activation, name="shared_mlp", fused="input_linear", down="output_linear")


def mixture(given: Fields, names: _Names, shared: MLP | None) -> Mixture:
    """Return a layer's experts, and the MLP beside them."""
    experts = given.integer("num_local_experts", 8)
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        routing=Routing(top_k=given.integer("num_experts_per_tok", 2, most=experts), chosen_only=True),
        activation=given.text("hidden_act", "silu"),
        name="",  # the shared MLP stands beside the experts
        router=names.router,
        module=names.module,
        parts=(names.widen,),
        down=names.down,
        fused="halves",
        shared=shared,
    )


shape = shape_of(read)


class GraniteMoE(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
