"""Parts that PLaMo 2 and 3 share: norms on both sides of mixer and MLP, and their output projection. Torch-free."""

from __future__ import annotations

from typing import TypedDict

from core_plugin_decoder import Fields, Norm

from core.api import CheckpointError

_ROWS = 16
"""An output projection of its own has a multiple of so many rows."""


class Norms(TypedDict):
    """The norms of a layer, by the names that `Layer` has for them."""

    before_attention: Norm
    after_attention: Norm
    before_mlp: Norm
    after_mlp: Norm


def norms(given: Fields) -> Norms:
    """Return the norms of a layer: the usual factors of those behind make what is added small."""
    return Norms(
        before_attention=norm(given, "pre_mixer_norm"),
        after_attention=norm(given, "post_mixer_norm", 1 / 5),
        before_mlp=norm(given, "pre_mlp_norm"),
        after_mlp=norm(given, "post_mlp_norm", 5**-1.5),
    )


def norm(given: Fields, name: str, usual: float = 1.0) -> Norm:
    """Return a norm; checkpoints store how far each factor is from the usual one."""
    return Norm(name=name, eps=given.number("rms_norm_eps", 1e-6, least=0.0), offset=usual)


def tied(given: Fields) -> bool:
    """Return whether embedding and output projection are one. Raises `CheckpointError` CORE-M126."""
    same, rows = given.flag("tie_word_embeddings", default=True), given.integer("vocab_size")
    if not same and rows % _ROWS:
        text = f"'vocab_size' is {rows}: an output projection of its own needs a multiple of {_ROWS}."
        raise CheckpointError("CORE-M126", text)
    return same
