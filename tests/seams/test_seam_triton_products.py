"""Products in Triton, by its interpreter, give the tokens of the reference product: whole engines on a fake device."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from core import LLM, SamplingParams

pytest.importorskip("triton")

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
ENGINE = {
    "dtype": "float32",
    "attention_backend": "torch_sdpa",
    "max_num_seqs": 8,
    "max_num_batched_tokens": 24,
    "max_model_len": 64,
    "block_size": 16,
    "num_blocks": 64,
}
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


def compressed(scheme):
    """Return the description of a scheme of compressed-tensors, and what makes its weights."""
    from core_plugin_compressed_tensors.conformance import described, encoded

    return described(scheme), lambda size, rng: encoded(scheme, size, rng)[0]


def float8_blocks():
    """Return the same for float8 in blocks of 128 x 128, activations in runs of 128."""

    def encode(size, rng):
        codes = torch.randn(*size, generator=rng).to(torch.float8_e4m3fn)
        shape = [-(-one // 128) for one in size]
        return {"weight": codes, "weight_scale_inv": torch.rand(shape, generator=rng) * 0.1 + 0.05}

    blocks = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"}
    return blocks, encode


def act_order():
    """Return the same for GPTQ of four bits with inputs in any order."""
    from core_plugin_gptq.conformance import _Kind, _linear

    described = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False}
    return described, lambda size, rng: _linear(_Kind(32, act_order=True), size[1], size[0], rng)[0]


METHODS = {
    "float8 in blocks": float8_blocks,
    "int8 by int8": lambda: compressed("W8A8"),
    "act-order": act_order,
    "NVFP4 by NVFP4": lambda: compressed("NVFP4"),
}
REST = [pytest.param(name, marks=pytest.mark.exhaustive) for name in METHODS if name != "float8 in blocks"]


def checkpoint(llama, folder, described, encode):
    """Write a model whose linear layers are stored in another way, and return its folder."""
    from safetensors.torch import load_file, save_file

    rng, files = torch.Generator().manual_seed(3), {}
    for name, weight in load_file(f"{llama}/model.safetensors").items():
        module, suffix = name.rsplit(".", 1)
        linear = module.rpartition(".")[2] in LINEAR
        stored = encode(tuple(weight.shape), rng) if linear else {suffix: weight}
        files |= {f"{module}.{key}": value.contiguous() for key, value in stored.items()}
    shutil.copytree(llama, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": described}))
    save_file(files, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def answers(model, prompt, **options):
    """Return the tokens of requests in two batches of different sizes, what multiplied, and the platform."""
    prompts = [prompt(5 + 13 * number, number) for number in range(3)]
    with LLM(model, **ENGINE, **options) as llm:
        found = [*llm.generate(prompts, GREEDY), *llm.generate(prompts[:1], GREEDY)]
        used = llm._engine.ready.facts.get("kernels", "")
        return [out.outputs[0].token_ids for out in found], used, llm._engine._core.loop.executor._worker._platform


@pytest.mark.covers("PLAT-03", "QUANT-01")
@pytest.mark.parametrize("method", ["float8 in blocks", *REST])
def test_a_quantized_model_s_tokens_are_those_of_the_reference_product(method, plugins, llama, prompt, tmp_path):
    """With graphs, and without the host waiting for the device."""
    model = checkpoint(llama, tmp_path / "model", *METHODS[method]())
    plugins("fake_device", "triton_ops")
    due, used, _ = answers(model, prompt, platform="fake_eager", kernel=["linear=reference", "lookup=reference"])
    assert "here_" not in used and len({token for row in due for token in row}) > 6
    found, used, platform = answers(model, prompt, platform="fake", kernel=["linear=here_linear", "lookup=reference"])
    assert found == due and "here_linear" in used
    assert platform.graphs.replayed and platform.queue().waits == 0
