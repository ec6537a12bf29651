"""Experts, latent attention and recurrences in Triton, by its interpreter, give the tokens of the reference forms:
engines on a fake device.
"""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from core import LLM, SamplingParams

pytest.importorskip("triton")

ENGINE = {
    "dtype": "float32",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 24,
    "max_model_len": 64,
    "block_size": 16,
    "num_blocks": 32,
}
EXPERTS = ("route", "experts_in", "experts_out")


def row_of(family, name):
    """Return a tiny checkpoint of a family's plugin."""
    path = Path(__file__).parents[2] / "plugins" / "models" / family / "tests" / "rows.py"
    spec = spec_from_file_location("rows_of_a_family", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(row for row in module.ROWS if row.name == name)


def answers(model, **options):
    """Return the tokens of prompts in pieces, then of two of them again; the kernels; and the platform."""
    tokens = [5, 9, 14, 3, 77, 8] * 5
    prompts = [{"prompt_token_ids": tokens[number : number + length]} for number, length in enumerate((27, 3, 18))]
    greedy = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    with LLM(model, **{**ENGINE, **options}) as llm:
        found = [*llm.generate(prompts, greedy), *llm.generate(prompts[:2], greedy)]
        worker = llm._engine._core.loop.executor._worker
        return [out.outputs[0].token_ids for out in found], llm._engine.ready.facts.get("kernels", ""), worker._platform


def held(plugins, model, ops=(), backend="torch_sdpa", graphs=True, stored=()):
    """Hold kernels, with graphs and without, to the reference forms. Those of `stored` keep weights as they are."""
    plugins("fake_device", "triton_ops", "triton_layers", "triton_interpreted")
    plain = [f"{op}=reference" for op in (*ops, *stored)]
    due, used, _ = answers(model, kernel=plain, platform="fake_eager", attention_backend="torch_sdpa")
    assert "here_" not in used
    names = {op: f"here_{op}" for op in ops} | {op: f"here_stored_{op}" for op in stored}
    chosen = [f"{op}={name}" for op, name in names.items()]
    found, used, platform = answers(model, kernel=chosen, platform="fake", attention_backend=backend)
    assert found == due and all(name in used for name in names.values())
    assert bool(platform.graphs.replayed) is graphs
    eager, _, _ = answers(model, kernel=chosen, platform="fake_eager", attention_backend=backend, overlap_depth=0)
    assert eager == due
    return platform


@pytest.mark.exhaustive
@pytest.mark.covers("MOE-05", "MOE-07", "MOE-08")
@pytest.mark.parametrize("family, name", [("qwen_moe", "qwen3_moe"), ("gpt_oss", "gpt_oss")])
def test_experts_tokens_are_those_of_the_reference_and_nothing_waits(plugins, tmp_path, family, name):
    """Sorted on the device: the host reads no counts, and graphs are made of it."""
    model = str(row_of(family, name).write(tmp_path / name))
    assert held(plugins, model, EXPERTS).queue().waits == 0


def as_stored(model, name, weight, rng):
    """Return the tensors of a matrix of experts as a quantized checkpoint has them; others are as they are."""
    module, _, suffix = name.rpartition(".")
    if model == "gpt_oss":
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return {name: weight}
        experts, inputs, outputs = weight.shape
        shape = (experts, outputs, inputs // 32)
        blocks = torch.randint(0, 256, (*shape, 16), dtype=torch.uint8, generator=rng)
        return {f"{name}_blocks": blocks, f"{name}_scales": torch.full(shape, 123, dtype=torch.uint8)}
    if not module.endswith(("_proj", "experts")) or suffix != "weight":
        return {name: weight}
    if model == "float8":
        codes = weight.clamp(-1, 1).mul(256).to(torch.float8_e4m3fn)
        scales = torch.rand([-(-one // 128) for one in weight.shape], generator=rng) * 0.004 + 0.002
        return {name: codes, f"{module}.weight_scale_inv": scales}
    from core_plugin_compressed_tensors.conformance import encoded

    stored, _ = encoded("W4A16, zero points", tuple(weight.shape), rng)
    return {f"{module}.{key}": one for key, one in stored.items()}


def described(model):
    """Return the `quantization_config` of these checkpoints."""
    if model == "gpt_oss":
        return {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    if model == "float8":
        return {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128], "fmt": "e4m3"}
    from core_plugin_compressed_tensors.conformance import described as compressed

    return {**compressed("W4A16, zero points"), "ignore": ["lm_head", r"re:.*\.mlp\.gate$"]}


def quantized(model, folder):
    """Write a tiny mixture whose experts are quantized, and return its folder."""
    row = row_of("gpt_oss", "gpt_oss") if model == "gpt_oss" else row_of("qwen_moe", "qwen3_moe")
    inner = {"intermediate_size" if model == "gpt_oss" else "moe_intermediate_size": 96}
    row.write(folder, hidden_size=64, num_hidden_layers=2, **inner)
    rng, tensors = torch.Generator().manual_seed(3), {}
    for name, weight in load_file(folder / "model.safetensors").items():
        tensors |= as_stored(model, name, weight, rng)
    save_file({name: one.contiguous() for name, one in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": described(model)}))
    return str(folder)


@pytest.mark.exhaustive
@pytest.mark.covers("MOE-07", "MOE-08", "QUANT-11")
@pytest.mark.parametrize("model", ["float8", "int4", "gpt_oss"])
def test_stored_experts_tokens_are_those_of_the_reference_and_nothing_waits(plugins, tmp_path, model):
    """Qwen3's in float8 blocks and in groups of int4 with zero points, gpt-oss' in MXFP4."""
    stored = quantized(model, tmp_path / model)
    assert held(plugins, stored, ("route",), stored=("experts_in", "experts_out")).queue().waits == 0


LONG = pytest.mark.exhaustive
LATENT = (pytest.param("deepseek_v2", marks=LONG), pytest.param("deepseek_v3", marks=LONG), "deepseek_v32")


@pytest.fixture
def first_of_equals(monkeypatch):
    """Which of several positions with equal scores are picked is not said (many are 0): here it is the first ones."""
    topk = torch.Tensor.topk

    def stable(scores, k, dim=-1, largest=True, sorted=True):
        if sorted:
            return topk(scores, k, dim=dim, largest=largest)
        values, places = torch.sort(scores, dim=dim, descending=True, stable=True)
        return torch.return_types.topk((values[..., :k], places[..., :k]))

    monkeypatch.setattr(torch.Tensor, "topk", stable)


@pytest.mark.covers("ATTN-08", "ATTN-10")
@pytest.mark.parametrize("name", LATENT)
def test_latent_attention_s_tokens_are_those_of_the_torch_backend(plugins, tmp_path, first_of_equals, name):
    model = str(row_of("deepseek", name).write(tmp_path / name))
    assert held(plugins, model, EXPERTS, backend="triton_interpreted").queue().waits == 0


RECURRENT = {
    "qwen3_next": ("qwen_next", (*EXPERTS, "causal_conv", "linear_attention")),
    "mamba": ("mamba", ("causal_conv", "selective_scan")),
    "mamba2": ("mamba", ("causal_conv", "linear_attention")),
    "falcon_h1": ("falcon_h1", ("causal_conv", "linear_attention")),
}
"""Row -> its plugin, and the operations that it asks for."""


@pytest.mark.covers("ATTN-11")
@pytest.mark.parametrize(
    "name", ["mamba", *(pytest.param(name, marks=LONG) for name in ("qwen3_next", "mamba2", "falcon_h1"))]
)
def test_recurrences_tokens_are_those_of_the_reference_and_nothing_waits(plugins, tmp_path, name):
    family, ops = RECURRENT[name]
    model = str(row_of(family, name).write(tmp_path / name))
    assert held(plugins, model, ops).queue().waits == 0
