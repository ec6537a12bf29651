"""Tiny checkpoints of this family."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from core_testing.families import TinyFamily

_spec = spec_from_file_location("reference_deci", Path(__file__).with_name("reference_deci.py"))
_deci = module_from_spec(_spec)
_spec.loader.exec_module(_deci)

_USUAL = {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False, "sparsify": None, "window_length": None}
_NAS = [
    {"attention": {**_USUAL, "n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": 1.3, "no_op": False}},
    {"attention": {**_USUAL, "n_heads_in_group": 4}, "ffn": {"ffn_mult": 5.25, "sparsify": None}},
    {"attention": {**_USUAL, "replace_with_linear": True}, "ffn": {"ffn_mult": None, "replace_with_linear": True}},
    {"attention": _USUAL, "ffn": {"no_op": True}},
    {"attention": {**_USUAL, "n_heads_in_group": 1}, "ffn": {"intermediate_size": 72}},
]


def _row(name, spread=0.2, **config):
    config = {"model_type": "nemotron-nas", "num_key_value_heads": None, **config}
    return TinyFamily(name, "DeciLMForCausalLM", config, _deci.reference, spread=spread)


ROWS = [
    _row("deci_nas", block_configs=_NAS, num_hidden_layers=5),
    _row(
        "deci_bias",
        block_configs=[*_NAS[1:], {"attention": {"no_op": True}, "ffn": {"no_op": True}}],
        num_hidden_layers=5,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
        spread=0.1,
    ),
    _row("deci_first", model_type="deci", num_key_value_heads_per_layer=[4, 1, 2], rope_theta=500.0),
]
