"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of


def reference(config):
    """Return the published formula."""
    bias, tied = config.get("attention_bias", False), config.get("tie_word_embeddings", False)
    return ReferenceDecoder(Reference(**sizes_of(config), norm="layer", qkv_bias=bias, output_bias=bias, tied=tied))


_BOTH = {"model_type": "orion", "rms_norm_eps": 1e-5}

ROWS = [
    TinyFamily("orion", "OrionForCausalLM", _BOTH, reference=reference, save=renamed()),
    TinyFamily(
        "orion_bias",
        "OrionForCausalLM",
        {**_BOTH, "attention_bias": True, "tie_word_embeddings": True, "head_dim": 24},
        reference=reference,
        save=renamed(),
    ),
]
