"""Operations in Triton, by its interpreter, give the tokens of the reference forms: whole engines on a fake device."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core_testing.tinymodels import tiny_model

pytest.importorskip("triton")

OPS = (
    *("rms_norm", "add_rms_norm", "silu_and_mul", "rotary", "lookup"),
    *("argmax", "draw", "mask_tokens", "add_bias", "penalize"),
)
ENGINE = {
    "dtype": "float32",
    "attention_backend": "torch_sdpa",
    "max_num_seqs": 8,
    "max_num_batched_tokens": 40,
    "max_model_len": 64,
    "block_size": 16,
    "num_blocks": 64,
}
ASKED = (
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 7},
    {"temperature": 0.9, "seed": 3, "top_p": 0.8, "top_k": 20},
    {"temperature": 1.2, "seed": 11, "min_p": 0.05},
    {"temperature": 0.0, "repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    {"temperature": 1.0, "seed": 1, "logit_bias": {40: 4.0, 41: -4.0, 5: 2.5}},
    {"temperature": 0.0, "logit_bias": {9: 30.0}},
    {"temperature": 1.0, "seed": 5, "grammar": {"regex": "[0-9]{3}-[a-c]{3}"}},
)
"""What requests ask for; none of it waits for the device."""


def answers(model, prompt, kernels, **options):
    """Return the tokens of all requests of `ASKED`, in two batches of different sizes, and the platform."""
    chosen = [f"{op}=here_{op}" if kernels else f"{op}=reference" for op in OPS]
    prompts = [prompt(5 + 3 * number, number) for number in range(len(ASKED))]
    params = [SamplingParams(max_tokens=4, **fields) for fields in ASKED]
    with LLM(model, **ENGINE, kernel=chosen, **options) as llm:
        found = [*llm.generate(prompts, params), *llm.generate(prompts[:3], params[:3])]
        used = llm._engine.ready.facts.get("kernels", "")
        worker = llm._engine._core.loop.executor._worker
        return [out.outputs[0].token_ids for out in found], used, worker._platform


@pytest.fixture(scope="module")
def qwen3(tmp_path_factory):
    return str(tiny_model(tmp_path_factory.mktemp("models") / "qwen3", "qwen3"))


@pytest.mark.covers("PLAT-03", "PLAT-09")
def test_a_tiny_llama_s_tokens_are_those_of_the_reference_and_nothing_waits(plugins, llama, prompt):
    """No kernel, draw, mask, bias or penalty has the host wait for the device: `.item()`, `nonzero`, copies to it."""
    plugins("fake_device", "triton_ops")
    due, used, _ = answers(llama, prompt, kernels=False, platform="fake_eager")
    assert "here_" not in used
    found, used, platform = answers(llama, prompt, kernels=True, platform="fake")
    assert found == due and all(f"here_{op}" in used for op in OPS)
    assert platform.graphs.captured and platform.graphs.replayed and platform.queue().waits == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", ["llama", "qwen3"])
def test_without_graphs_the_tokens_are_the_same(plugins, request, prompt, model):
    plugins("fake_device", "triton_ops")
    model = request.getfixturevalue(model)
    due, _, _ = answers(model, prompt, kernels=False, platform="fake_eager")
    found, _, platform = answers(model, prompt, kernels=True, platform="fake_eager", overlap_depth=2)
    assert found == due and platform.graphs is None and platform.queue().waits == 0


@pytest.mark.covers("PLAT-03")
def test_a_tiny_qwen3_s_tokens_are_those_of_the_reference(plugins, qwen3, prompt):
    """Norms of heads, heads that are wider than the hidden size divided, a head tied to its embedding."""
    plugins("fake_device", "triton_ops")
    due, _, _ = answers(qwen3, prompt, kernels=False, platform="fake_eager")
    found, _, platform = answers(qwen3, prompt, kernels=True, platform="fake")
    assert found == due and platform.graphs.replayed and platform.queue().waits == 0
