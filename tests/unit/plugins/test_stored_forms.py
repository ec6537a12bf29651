"""The forms of a checkpoint's matrices, as each quantization method tells them from headers, without torch."""

from __future__ import annotations

import pytest

from core.api import CheckpointInfo
from core.api.descriptors import QuantSpec
from core.plugins.catalog import Catalogue
from core.plugins.drivers import load_descriptors
from core.selection.quantization import stored_forms

NAME = "model.layers.0.mlp.up_proj"
PACKED = {f"{NAME}.qweight": ((8, 64), "int32"), f"{NAME}.qzeros": ((1, 8), "int32"), f"{NAME}.g_idx": ((64,), "int32")}
PLAIN = {"model.embed_tokens.weight": ((90, 64), "bfloat16"), "model.norm.weight": ((64,), "bfloat16")}
GPTQ = {"bits": 3, "group_size": 64, "sym": True, "desc_act": True}
ROUNDED = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
INT8 = {"format": "int-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": ROUNDED}}}

INT4 = {**INT8, "config_groups": {"g": {"targets": ["Linear"], "weights": {**ROUNDED, "num_bits": 4}}}}


@pytest.mark.parametrize(
    ("method", "config", "tensors", "forms"),
    [
        ("none", {}, PLAIN, {"plain": 1}),
        ("none", {}, {}, {"plain": 0}),
        ("gguf", {}, {"a.weight": ((4, 64), "gguf:Q4_K"), **PLAIN}, {"gguf:Q4_K": 1, "plain": 1}),
        ("awq", {"bits": 4, "group_size": 64}, {**PACKED, **PLAIN}, {"int4/1x64:float32+zeros": 1, "plain": 1}),
        ("gptq", GPTQ, {**PACKED, **PLAIN}, {"int3/1x64:float32+ordered": 1, "plain": 1}),
        ("gptq", {"bits": 8}, {}, {"int8/1x128:float32+zeros": 0}),
        ("compressed-tensors", INT4, {f"{NAME}.weight": ((4, 64), "int8")}, {"int4/1xall:float32": 1}),
        ("compressed-tensors", INT8, {f"{NAME}.weight": ((4, 64), "int8")}, {"int8/1xall:float32": 1}),
    ],
)
def test_methods_tell_the_forms_of_a_checkpoint(method, config, tensors, forms):
    candidates, _ = load_descriptors(Catalogue.scan().entries(QuantSpec.group))
    (mine,) = [one for one in candidates if one.entry.name == method]
    info = CheckpointInfo(
        path="m", format="f", architecture="A", config={}, quantization_config=config, tensors=tensors
    )
    assert {form.shown: count for form, count in stored_forms(mine, info).items()} == forms
