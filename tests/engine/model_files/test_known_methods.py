"""Every name that a method of quantization has elsewhere is read, or refused with what to do instead."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from transformers.utils.quantization_config import QuantizationMethod

from core.api import CoreError
from core.api.descriptors import QuantSpec
from core.config.resolved import Options, SelectOptions
from core.options.model import ModelOptions
from core.plugins.catalog import Catalogue
from core.plugins.drivers import load_descriptors
from core.selection.resolver import resolve
from core_testing.tinymodels import tiny_llama

CHECKPOINTS = {one.value for one in QuantizationMethod} | {
    *(
        "bitblas",
        "marlin",
        "gptq_marlin",
        "gptq_bitblas",
        "deepspeedfp",
        "experts_int8",
        "ptpc_fp8",
        "qqq",
        "squeezellm",
    ),
    *("inc", "intel/auto-round", "modelopt", "modelopt_fp4", "modelopt_mxfp8", "rtn", "tpu_int8"),
}
"""Values of `quant_method`: those of transformers, and those that vLLM has, or had, besides."""

ASKED = [
    *("awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "gptq_marlin", "gptq_marlin_24", "gptq_bitblas", "bitblas"),
    *("marlin", "humming", "moe_wna16", "experts_int8", "fp8", "fbgemm_fp8", "ptpc_fp8", "fp_quant", "modelopt"),
    *("modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed", "compressed-tensors", "quark", "torchao", "inc", "mxfp4"),
    *("gpt_oss_mxfp4", "deepseek_v4_fp8", "online", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel", "mxfp8"),
    *("int8_per_channel_weight_only", "nvfp4_per_token", "gguf", "hqq", "bitsandbytes", "deepspeedfp", "tpu_int8"),
    *("ipex", "qqq", "neuron_quant", "rtn", "petit_nvfp4", "squeezellm", "aqlm", "auto-round"),
]
"""Values that vLLM's `--quantization` takes, or took."""

TOLD = r"There is no '{}': .*(Use|while they load|Leave --quantization out)|No plugin for .* is released or planned"


@pytest.fixture(scope="module")
def specs():
    found, faults = load_descriptors(Catalogue.scan().entries(QuantSpec.group))
    assert not faults
    return [one.descriptor for one in found]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("plain") / "llama")


def options(model, **select):
    return Options(model=ModelOptions(model=str(model)), select=SelectOptions(**select))


@pytest.mark.covers("QUANT-01", "QUANT-02")
@pytest.mark.parametrize("method", sorted(CHECKPOINTS))
def test_a_checkpoint_of_each_method_is_read_or_refused_with_what_to_do(specs, plain, tmp_path, method):
    if any(method in spec.methods for spec in specs):
        return
    model = shutil.copytree(plain, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": method}}))
    with pytest.raises(CoreError, match="CORE-P203") as refused:
        resolve(options(model))
    assert_told(refused.value.hint, method)


@pytest.mark.covers("QUANT-02")
@pytest.mark.parametrize("name", ASKED)
def test_a_name_that_is_asked_for_is_a_plugin_or_refused_with_what_to_do(specs, plain, name):
    if any(name == spec.name for spec in specs):
        return
    with pytest.raises(CoreError, match="CORE-P101") as refused:
        resolve(options(plain, quantization=name))
    assert_told(refused.value.hint, name)


def assert_told(hint, name):
    assert re.search(TOLD.format(re.escape(name)), hint), hint
