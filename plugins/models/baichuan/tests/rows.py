"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of


def rotated(config):
    """Return the formula of the smaller model."""
    return ReferenceDecoder(Reference(**sizes_of(config), qkv="joined"))


def biased(config):
    """Return the formula of the larger model."""
    slopes = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1]
    return ReferenceDecoder(Reference(**(sizes_of(config) | {"theta": None}), qkv="joined", slopes=slopes))


_SAVE = renamed(("qkv_proj", "W_pack"))
_BOTH = {"model_type": "baichuan", "num_key_value_heads": None, "model_max_length": 256}
_ALIBI = {**_BOTH, "max_position_embeddings": None, "position_embedding": "ALIBI", "num_attention_heads": 5}

ROWS = [
    TinyFamily("baichuan_7b", "BaiChuanForCausalLM", _BOTH, reference=rotated, save=_SAVE, native={"hidden_size": 128}),
    TinyFamily(
        "baichuan_13b", "BaichuanForCausalLM", _ALIBI, reference=biased, save=_SAVE, native={"hidden_size": 160}
    ),
]
