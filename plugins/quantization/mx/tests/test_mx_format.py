"""What the format reads, against its definition."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from core_plugin_mx.config import reasons_against, refine
from core_plugin_mx.conformance import E2M1, quark, samples
from core_plugin_mx.scheme import MX
from core_plugin_unquantized.packing import codes_of_bytes
from safetensors.torch import load_file, save_file

from core import LLM, SamplingParams
from core.api import PLAIN, CheckpointError, LayerSite, ProbeResult, QuantContext, QuantRequest
from core.ops.rounding import rounded
from core_testing.families import TinyFamily
from core_testing.layers import sample_layer
from core_testing.samples import compare_sample, redescribed

SAMPLES = {one.name: one for one in samples()}
ROUNDS = {"MXFP4": None, "MXFP4, activations too": "e2m1:32", "MXFP8": None, "MXFP8, activations too": "float8:32"}
LINEAR = LayerSite("linear", "model.layers.0.mlp.gate_proj", 64, (("", 8),))
EXPERTS = LayerSite("experts", "model.layers.0.mlp.experts", 64, (("0.down_proj", 8),), experts=1)


def made(config, **options):
    return MX(QuantContext(torch.device("cpu"), torch.float32, config, options))


@pytest.mark.covers("QUANT-11")
@pytest.mark.parametrize("name", ROUNDS)
def test_layers_compute_what_the_format_means(name, tmp_path):
    sample, kind = SAMPLES[name], ROUNDS[name]
    rounds = None if kind is None else partial(rounded, activations=kind)
    compare_sample(MX, replace(sample, layers=sample.layers[:3]), tmp_path, rounds)


def test_two_codes_are_in_a_byte_the_first_in_its_low_bits():
    assert codes_of_bytes(torch.tensor([[0x21, 0xF0]], dtype=torch.uint8)).tolist() == [[1, 2, 0, 15]]


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"quant_method": "mxfp8"}, "float8_e4m3fn/1x32:e8m0@as_is"),
        (quark("fp4"), "e2m1/1x32:e8m0@as_is"),
        (quark("fp4", "fp4"), "e2m1/1x32:e8m0@e2m1:32"),
        (quark("fp4", "fp8_e4m3"), "e2m1/1x32:e8m0@float8:32"),
    ],
)
def test_the_form_is_the_checkpoints(config, key):
    assert made(config).form(LINEAR, "").key == key
    assert made(config, activations="as_is").form(LINEAR, "").key == key.partition("@")[0] + "@as_is"


def test_layers_may_differ_and_some_are_plain():
    own = {"*.gate_proj": quark("fp8_e4m3")["global_quant_config"]}
    form = made({**quark("fp4"), "layer_quant_config": own, "exclude": ["*.o_proj", "model.layers.1"]})
    assert form.form(LINEAR, "").codes == "float8_e4m3fn"
    assert form.form(replace(LINEAR, prefix="model.layers.0.mlp.up_proj"), "").codes == "e2m1"
    for kind, path in (
        ("linear", "model.layers.0.self_attn.o_proj"),
        ("linear", "model.layers.1.mlp.up_proj"),
        ("lm_head", "lm_head"),
        ("embedding", "model.embed_tokens"),
        ("router", "model.layers.0.mlp.router"),
    ):
        assert form.form(LayerSite(kind, path, 64, (("", 8),)), "") == PLAIN, path


def test_of_gpt_oss_experts_alone_are_in_blocks():
    form = made({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]})
    assert form.form(LINEAR, "") == PLAIN
    assert form.form(EXPERTS, "0.down_proj").key == "e2m1/1x32:e8m0@as_is"
    assert [one.suffix for one in form.stored(EXPERTS, "0.down_proj")] == ["weight_blocks", "weight_scales"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"dtype": "int4"}, "int4"),
        ({"group_size": 16}, "group_size 16"),
        ({"qscheme": "per_tensor"}, "per_tensor"),
        ({"scale_format": "float32"}, "float32"),
    ],
)
def test_other_schemes_are_refused_by_name(change, named):
    for place in ("weight", "input_tensors"):
        config = quark("fp4", "fp4")
        config["global_quant_config"][place] |= change
        with pytest.raises(CheckpointError, match=named):
            made(config)
        verdict = refine(QuantRequest("quark", "cpu", "auto", config), ProbeResult(available=True))
        assert list(verdict.reasons) == reasons_against(config) != []


@pytest.mark.parametrize(
    ("sample", "suffix", "tensor"),
    [
        ("MXFP4", "weight", torch.zeros(48, 32, dtype=torch.int8)),
        ("MXFP8", "weight", torch.zeros(48, 64)),
        ("MXFP4", "weight_scale", torch.zeros(48, 2)),
    ],
)
def test_tensors_that_contradict_the_settings_are_refused_by_name(sample, suffix, tensor, tmp_path):
    site = SAMPLES[sample].layers[2]
    broken = redescribed(SAMPLES[sample], {f"{site.prefix}.{suffix}": tensor})
    with pytest.raises(CheckpointError, match=f"up_proj.{suffix}' holds torch.") as caught:
        sample_layer(MX, broken, site, tmp_path)
    assert caught.value.code == "CORE-M160"


GPT_OSS = TinyFamily(
    "gpt_oss",
    "GptOssForCausalLM",
    {
        "model_type": "gpt_oss",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_local_experts": 5,
        "num_experts_per_tok": 2,
        "head_dim": 16,
    },
)


def in_blocks(weight):
    """The blocks and scales of `(experts, in, out)`, and the values that they mean."""
    runs = weight.transpose(1, 2).unflatten(-1, (-1, 32))
    exponents = torch.frexp(runs.abs().amax(-1)).exponent - 3
    scaled = runs / torch.ldexp(torch.ones(exponents.shape), exponents).unsqueeze(-1)
    codes = (scaled.unsqueeze(-1) - E2M1).abs().argmin(-1)
    blocks = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)
    return blocks, (exponents + 127).to(torch.uint8)


@pytest.mark.covers("QUANT-11", "MOE-04")
def test_experts_of_gpt_oss_are_those_that_transformers_opens(tmp_path):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    plain = GPT_OSS.write(tmp_path / "plain")
    stored, meant = {}, {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales = in_blocks(tensor.float())
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
            meant[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
        else:
            stored[name] = meant[name] = tensor
    config = json.loads((plain / "config.json").read_text())
    quantized = {**config, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    found = []
    for folder, tensors, described in (("twin", meant, config), ("model", stored, quantized)):
        path = shutil.copytree(plain, tmp_path / folder)
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        (path / "config.json").write_text(json.dumps(described))
        with LLM(str(path), dtype="float32", num_blocks=20, block_size=16, threads=1) as llm:
            params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
            found.append(llm.generate([{"prompt_token_ids": [3, 50, 7, 91, 22]}], params)[0].outputs[0])
    assert found[0].token_ids == found[1].token_ids
    assert len(set(found[0].token_ids)) > 2


def filled(tensor, sizes, number):
    """A tensor with dimensions of these sizes, the rest of which is one number."""
    whole = torch.full(sizes, number, dtype=tensor.dtype)
    whole[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return whole


PADDED_SIZES = {
    "experts.gate_up_proj_blocks": ((5, 256, 4, 16), 0),
    "experts.gate_up_proj_scales": ((5, 256, 4), 0),
    "experts.gate_up_proj_bias": ((5, 256), 0),
    "experts.down_proj_blocks": ((5, 128, 4, 16), 0),
    "experts.down_proj_scales": ((5, 128, 4), 127),
    "experts.down_proj_bias": ((5, 128), 0),
}
"""A hidden size of 64 and an inner one of 96, both stored as 128."""


@pytest.mark.covers("QUANT-11", "MOE-04", "MOE-08")
@pytest.mark.parametrize("wrong", [False, True])
def test_experts_of_gpt_oss_may_be_padded(wrong, tmp_path):
    plain = GPT_OSS.write(tmp_path / "plain")
    stored, padded = {}, {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            blocks, scales = in_blocks(tensor.float())
            stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        else:
            stored[name] = tensor
    for name, tensor in stored.items():
        sizes, number = next((one for end, one in PADDED_SIZES.items() if name.endswith(end)), (tensor.shape, 0))
        padded[name] = filled(tensor, sizes, number)
    if wrong:  # numbers that are no padding
        padded["model.layers.1.mlp.experts.down_proj_blocks"][2, 100, 1, 3] = 7
    config = json.loads((plain / "config.json").read_text())
    quantized = {**config, "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    found = []
    for folder, tensors in (("model", stored), ("padded", padded)):
        path = shutil.copytree(plain, tmp_path / folder)
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        (path / "config.json").write_text(json.dumps(quantized))
        told = pytest.raises(CheckpointError, match=r"CORE-M122 .*down_proj") if wrong and folder == "padded" else None
        with told or nullcontext(), LLM(str(path), dtype="float32", num_blocks=20, block_size=16, threads=1) as llm:
            params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
            found.append(llm.generate([{"prompt_token_ids": [3, 50, 7, 91, 22]}], params)[0].outputs[0].token_ids)
    assert len(found) == 1 if wrong else found[0] == found[1]
