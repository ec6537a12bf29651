"""What no installed plugin reads is refused while plugins are chosen, with every candidate's reasons."""

from __future__ import annotations

import json
import shutil

import pytest

from core.api import CoreError
from core.cli.main import main
from core.config.resolved import Options, SelectOptions
from core.options.model import ModelOptions
from core.selection.resolver import Resolver, resolve
from core_testing.tinymodels import tiny_llama

INT8 = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
ROUNDED = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}
INT4 = {**INT8, "num_bits": 4, "strategy": "group", "group_size": 128}
FP8 = {**INT8, "type": "float", "strategy": "tensor"}
FP4 = {**INT4, "type": "float", "strategy": "tensor_group", "group_size": 16}


def compressed(weights, activations=None, form="int-quantized", **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    groups = {"config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    return {"quant_method": "compressed-tensors", "format": form, **groups, **more}


W8A8 = compressed(INT8, ROUNDED)
SPARSE = {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}
MIXED = {"a": {"targets": ["re:.*mlp.*"], "weights": INT8}, "b": {"targets": ["Linear"], "weights": INT4}}
MIXED_BITS = {**MIXED, "b": {**MIXED["b"], "weights": {**INT4, "num_bits": 3}}}
MIXED_FORMATS = {**MIXED, "b": {**MIXED["b"], "format": "pack-quantized"}}
CALLED = {"mxfp4": "mx", "auto-round": "gptq", "auto-round as awq": "awq", "inc": "gptq"}
"""Plugins with another name than the method."""

UNREAD = {
    "W3A16": (compressed({**INT4, "num_bits": 3}, form="pack-quantized"), ["W3A16", "num_bits 3, not 4 or 8"]),
    "FP8": (compressed({**FP8, "strategy": "token"}, None, "float-quantized"), ["W8A16 float", "strategy 'token'"]),
    "NVFP4": (compressed({**FP4, "group_size": 32}, None, "nvfp4-pack-quantized"), ["W4A16 float", "group_size 32"]),
    "marlin 2:4": (compressed(INT4, form="marlin-24"), ["format 'marlin-24'"]),
    "2:4": ({**W8A8, "sparsity_config": SPARSE}, ["sparse weights (sparse-24-bitmask, 2:4)"]),
    "static": (compressed(INT8, {**ROUNDED, "dynamic": False}), ["input_activations num_bits 8", "dynamic False"]),
    "transforms": ({**W8A8, "transform_config": {"config_groups": {"u": {}}}}, ["inputs are transformed"]),
    "groups": ({**W8A8, "config_groups": MIXED_BITS}, ["b (W3A16): weights with num_bits 3"]),
    "nonsense": ({**W8A8, "config_groups": {"g": 1}}, ["g (W?A16)"]),
    "awq bits": ({"quant_method": "awq", "bits": 8, "version": "llm-awq"}, ["8 bits, not 4", "layout 'llm-awq'"]),
    "gptq": ({"quant_method": "gptq", "bits": 5, "group_size": 0}, ["5 bits", "groups of 0 inputs"]),
    "gptq form": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, ["format 'marlin'"]),
    "gptq layers": ({"quant_method": "gptq", "dynamic": {"+:x": {"bits": 6}}}, ["x: weights of 6 bits"]),
    "marlin": ({"quant_method": "gptq", "bits": 4, "is_marlin_format": True}, ["marlin's order"]),
}
READ = {
    "W8A8": W8A8,
    "W4A16": compressed(INT4, form="pack-quantized"),
    "W4A8 in bytes": compressed(INT4, ROUNDED),
    "FP8": compressed(FP8, {**FP8, "dynamic": True}, "float-quantized"),
    "NVFP4": compressed(FP4, {**FP4, "dynamic": "local"}, "nvfp4-pack-quantized"),
    "two groups": {**W8A8, "format": "mixed-precision", "config_groups": MIXED_FORMATS},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    "mxfp4": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    "modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "awq gemv": {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemv"},
    "auto-round": {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"},
    "auto-round as awq": {"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq"},
    "inc": {"quant_method": "inc", "bits": 4},
    "hqq": {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 3, "axis": 1}}},
    "torchao": {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}}},
    "bitsandbytes": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "W8A16": compressed(INT8),
    "dense": {**W8A8, "sparsity_config": {"format": "dense"}, "transform_config": {}, "kv_cache_scheme": None},
    "awq": {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"},
    "gptq": {"quant_method": "gptq", "bits": 3, "group_size": -1, "desc_act": True, "sym": False},
    "gptq layers": {"quant_method": "gptq", "bits": 4, "dynamic": {"-:x": {}, "+:y": {"bits": 8}}},
    "gptq_v2": {"quant_method": "gptq", "bits": 8, "checkpoint_format": "gptq_v2"},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("plain") / "llama")


@pytest.fixture
def stored(plain, tmp_path):
    """`stored(config)` -> a checkpoint that says so; its tensors are plain, and nobody reads them."""

    def make(config):
        folder = shutil.copytree(plain, tmp_path / "model")
        text = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**text, "quantization_config": config}))
        return folder

    return make


def options(model, **select):
    return Options(model=ModelOptions(model=str(model)), select=SelectOptions(**select))


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", UNREAD)
def test_a_form_that_nobody_reads_is_refused_with_the_reasons_of_each_method(stored, name):
    config, reasons = UNREAD[name]
    resolver = Resolver(options(stored(config)))
    with pytest.raises(CoreError) as failure:
        resolver.run()
    assert failure.value.code == "CORE-P203"
    rows = [row for row in resolver.reports[-1].rows if config["quant_method"] in row.name.replace("_", "-")]
    (row,) = rows
    assert row.state == "rejected" and all(reason in "; ".join(row.reasons) for reason in reasons), row.reasons
    assert all(row.name in str(failure.value) for row in resolver.reports[-1].rows)
    with pytest.raises(CoreError, match="CORE-P201") as refused:
        resolve(options(resolver.options.model.model, quantization=config["quant_method"]))
    assert all(reason in str(refused.value) for reason in reasons)


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", READ)
def test_a_form_that_is_read_is_chosen(stored, name):
    method = READ[name]["quant_method"]
    chosen = resolve(options(stored(READ[name]))).config.plan.one("core.quantization").name
    assert CALLED.get(name, method) in chosen.replace("_", "-")


def test_why_prints_the_reasons_and_fails(stored, capsys):
    assert main(["plugins", "why", str(stored(UNREAD["W3A16"][0]))]) == 1
    shown = capsys.readouterr()
    assert "CORE-P203" in shown.err and "num_bits 3" in shown.out and "compressed-tensors" in shown.out


def test_a_model_without_a_tokenizer_is_refused_before_it_is_loaded(plain, tmp_path, capsys):
    folder = shutil.copytree(plain, tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    assert main(["plugins", "why", str(folder)]) == 1
    assert "CORE-M110 there is no tokenizer.json in" in capsys.readouterr().err
    resolved = resolve(Options(model=ModelOptions(model=str(folder), runner="pooling", convert="embed")))
    assert not resolved.config.decodes  # it reads token ids
