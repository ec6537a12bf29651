"""Zamba2: layers of Mamba-2, some of which read a transformer block as well; there are few blocks, used by turns.

Torch-free, but for the model class. Shapes: T tokens of a step; D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import CausalLM, Decoder, Fields, Layer, Mamba2, Norm, Recurrence, shape_of

from core.api import CheckpointError, ModelShape, WeightShape, config_names
from core_plugin_zamba.blocks import block_of, fields

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

_MIXER_EPS = 1e-5
_KINDS = {"mamba": False, "linear_attention": False, "hybrid": True}
"""Name of a layer's kind -> whether it reads a block."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration without its blocks."""
    given = fields(config)
    eps, kinds = given.number("rms_norm_eps", 1e-5, least=0.0), _kinds(given)
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(_layer(given, eps, "mamba_decoder." if hybrid else "") for hybrid in kinds),
        final_norm=Norm(name="final_layernorm", eps=eps),
        max_positions=block_of(given).max_positions,
        dtype=given.dtype(),
        tied=_tied(given),
        skips=tuple(_skips(given)),
    )


def shape(config: dict[str, Any]) -> ModelShape:
    """Return the facts that the engine needs before any weight is read."""
    given = fields(config)
    block, hybrids = block_of(given), _hybrids(given)
    known = shape_of(read)(config)
    if not hybrids:
        return known
    weights = [
        WeightShape(name=f"layers.{index}.shared_transformer.{name}.weight", dims=dims)
        for index in hybrids[: _count(given)]
        for name, dims in block.weights(given.integer("hidden_size")).items()
    ]
    return known.model_copy(
        update={
            "num_heads": block.heads,
            "num_kv_heads": block.kv_heads,
            "head_dim": block.head_dim,
            "head_dims": frozenset((block.head_dim,)),
            "ropes": () if block.rope is None else (block.rope,),
            "weights": (*known.weights, *weights),
        }
    )


class Zamba2(CausalLM):
    """The architecture."""

    describe = staticmethod(read)

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        from core_plugin_zamba.shared import SharedBlock

        super().__init__(config, build)
        given, decoder = fields(config), read(config)
        block, hybrids = block_of(given), _hybrids(given)
        made = [
            SharedBlock(block, build, decoder.hidden_size, f"{decoder.layer_path(index)}.shared_transformer")
            for index in hybrids[: _count(given)]
        ]
        uses = {
            index: made[use % len(made)].use(use, index, f"{decoder.layer_path(index)}.linear")
            for use, index in enumerate(hybrids)
        }
        self.layers = [(body, uses.get(index)) for index, (_, (body,)) in enumerate(self.passes[0])]

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(T, D)`."""
        embedded = residual = self.embed(step)
        pending: Tensor | None = None
        for mixer, use in self.layers:
            if use is None:
                pending, residual = mixer(pending, residual, step)
                continue
            if pending is not None:
                residual = residual + pending
            # What a block gives is read by the mixer, and does not become a part of the residual.
            pending, _ = mixer(use(residual, embedded, step), residual, step)
        assert self.norm is not None
        return self.norm(residual) if pending is None else self.norm.add(pending, residual)[0]


def _kinds(given: Fields) -> tuple[bool, ...]:
    """Return of each layer whether it reads a block."""
    count = given.layers()
    key = next((one for one in ("layers_block_type", "layer_types") if given.config.get(one) is not None), None)
    if key is None:
        # The one that transformers takes: 54 layers.
        names = ["mamba", *(["mamba"] * 5 + ["hybrid"]) * 7, *["mamba"] * 4, "hybrid", *["mamba"] * 3, "hybrid"]
        named: tuple[str, ...] = (*names, "mamba", "mamba")
    else:
        named = config_names(given.config, key) or ()
    if len(named) != count or not set(named) <= set(_KINDS):
        text = f"'{key or 'layers_block_type'}' must name {count} layers as {', '.join(sorted(_KINDS))}."
        raise CheckpointError("CORE-M126", text)
    return tuple(_KINDS[name] for name in named)


def _hybrids(given: Fields) -> list[int]:
    """Return the numbers of the layers that read a block."""
    return [index for index, hybrid in enumerate(_kinds(given)) if hybrid]


def _tied(given: Fields) -> bool:
    return given.flag("tie_word_embeddings", default=True)


def _count(given: Fields) -> int:
    """Return how many blocks there are; the first layers that read one have them in their modules.

    transformers shares blocks where embedding and output projection are one; elsewhere each layer has its own.
    """
    return given.integer("num_mem_blocks", 1) if _tied(given) else len(_hybrids(given))


def _skips(given: Fields) -> Iterator[str]:
    """Yield what checkpoints may have beside: a shared block again, and adapters of other uses of one that is not."""
    hybrids, count = _hybrids(given), _count(given)
    for use, index in enumerate(hybrids):
        if use >= count:
            yield f"*layers.{index}.shared_transformer.*"
        elif not _tied(given):
            yield from (
                f"*layers.{index}.shared_transformer.*_adapter_list.{other}.*"
                for other in range(len(hybrids))
                if other != use
            )


def _layer(given: Fields, eps: float, below: str) -> Layer:
    """Return a layer of a mixer; its modules are below a module of this name."""
    return Layer(
        attention=_mixer(given, f"{below}mamba"),
        mlp=None,
        before_attention=Norm(name=f"{below}input_layernorm", eps=eps),
    )


def _mixer(given: Fields, name: str) -> Recurrence:
    size, bias = given.integer("hidden_size"), given.flag("add_bias_linear")
    heads, groups = given.integer("n_mamba_heads", 8), given.integer("mamba_ngroups", 1)
    inner = given.integer("mamba_expand", 2) * size
    if inner % heads:
        raise CheckpointError("CORE-M126", f"'n_mamba_heads' is {heads}, which does not divide {inner} channels.")
    return Mamba2(
        heads=heads,
        head_dim=inner // heads,
        groups=groups,
        state_dim=given.integer("mamba_d_state", 64),
        width=given.integer("mamba_d_conv", 4),
        bias=bias,
        output_bias=bias,
        limits=(given.number("time_step_min", 0.001, least=0.0), float("inf")),
        norm=Norm(name="norm", eps=_MIXER_EPS, groups=groups),
        name=name,
    ).recurrence(size)
