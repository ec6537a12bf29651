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
    """Checkpoints' names of a mixture's modules, and of the two tensors that hold the weights of all experts.

    Attributes:
        widen: Modules that make gate and up of the hidden state: one module, or one for each.
        ending: Of those tensors' names; None: each expert has tensors of its own.
    """

    router: str
    module: str
    widen: tuple[str, ...]
    down: str
    ending: str | None

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        """Return the rules that take these tensors apart."""
        if self.ending is None:
            return ()
        names = (*self.widen, self.down)
        return tuple((f".{self.module}.{name}{self.ending}", f".{self.module}.{{}}.{name}.weight") for name in names)


_FIRST = _Names("block_sparse_moe.router.layer", "block_sparse_moe", ("input_linear",), "output_linear", ".weight")
_WINDOWED = _Names("block_sparse_moe.router", "block_sparse_moe.experts", ("gate_up_proj",), "down_proj", "")
# As transformers has them in memory: what a method that quantizes these parameters writes.
_STACKED = _Names("block_sparse_moe.router.layer", "block_sparse_moe.experts", ("gate_up_proj",), "down_proj", "")
# Files of other layouts have the parts.
_APART = _Names("block_sparse_moe.router.layer", "block_sparse_moe", ("gate_proj", "up_proj"), "output_linear", None)


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GraniteMoeForCausalLM")
    given.refuse("mlp_bias")
    windowed = given.architecture.startswith("GraniteMoeSWA")
    names = _WINDOWED if windowed else names_of(given)
    decoder = (read_windowed if windowed else read_granite)(config)
    experts = mixture(given, names, _shared(given, fused=names.ending is not None))
    return replace(
        decoder,
        layers=tuple(replace(layer, mlp=experts) for layer in decoder.layers),
        tied=given.flag("tie_word_embeddings"),
        experts=names.stored,
    )


def names_of(given: Fields) -> _Names:
    """Return the names of a file: `experts_fused` in the configuration is a reader's word."""
    if not given.flag("experts_fused", default=True):
        return _APART
    return _FIRST if given.config.get("experts_fused") is None else _STACKED


def _shared(given: Fields, *, fused: bool) -> MLP | None:
    """Return the MLP beside the experts, of the architectures that may have one."""
    shares = given.architecture.startswith(("GraniteMoeShared", "GraniteMoeSWA"))
    return shared_mlp(given, fused=fused) if shares and given.config.get("shared_intermediate_size") else None


def shared_mlp(given: Fields, *, fused: bool = True) -> MLP:
    """Return the MLP that all tokens share; `fused`: one module holds gate and up."""
    size, activation = given.integer("shared_intermediate_size", 1024), given.text("hidden_act", "silu")
    module = "input_linear" if fused else None
    return MLP(size=size, activation=activation, name="shared_mlp", fused=module, down="output_linear")


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
        parts=names.widen,
        down=names.down,
        fused=None if names.ending is None else "halves",
        shared=shared,
    )


shape = shape_of(read)


class GraniteMoE(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
