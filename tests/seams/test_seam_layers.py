"""Hook plugins wrap layers, see the loaded model, and change or refuse requests."""

from __future__ import annotations

import asyncio

import pytest

from core import LLM, AsyncLLM, SamplingParams
from core.api import RequestError
from core.frontend.request import GenerationRequest

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


def test_a_plugin_wraps_what_the_builder_hands_out(plugins, llama, prompt):
    plugins("platform")  # on the toy platform no graph stands in for the layers' own calls
    options = {"dtype": "float32", "num_blocks": 60, "platform": "graphbox"}
    with LLM(llama, **options) as llm:
        plain = llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids
    plugins("hooks")
    with LLM(llama, **options) as llm:
        from seam_hooks.hooks import CALLS

        before = dict(CALLS["layer"])
        assert llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids == plain
        steps = llm.call("stats")["steps"]
    layers = {f"model.layers.{index}.self_attn.o_proj" for index in range(3)} | {f"attention {i}" for i in range(3)}
    assert set(before) == layers
    assert {name: CALLS["layer"][name] - before[name] for name in layers} == dict.fromkeys(layers, steps)


def test_the_loaded_model_is_shown_with_its_facts(plugins, llama, tmp_path):
    plugins("hooks")
    from safetensors.torch import load_file, save_file

    save_file(load_file(f"{llama}/model.safetensors"), tmp_path / "model.safetensors")
    with LLM(llama, dtype="float32", num_blocks=60, weight_transfer="disk") as llm:
        llm.call("update_weights", {"path": str(tmp_path / "model.safetensors"), "version": "second"})
    from seam_hooks.hooks import CALLS

    (name, first), (_, second) = CALLS["loaded"]
    assert name == "CausalLM" and first["architecture"] == "LlamaForCausalLM" and first["device"] == "cpu"
    assert (first["version"], second["version"]) == ("initial", "second")
    assert first["num_parameters"] == second["num_parameters"] > 10_000
    assert "weights_updated" in CALLS["events"]


def test_a_plugin_changes_and_refuses_requests_offline(plugins, llama, prompt):
    plugins("hooks")
    with LLM(llama, dtype="float32", num_blocks=60) as llm:
        outputs = llm.generate([prompt(7), prompt(8)], GREEDY)
        assert [len(output.outputs[0].token_ids) for output in outputs] == [3, 6]
        with pytest.raises(RequestError, match="thirteen") as refusal:
            llm.generate([prompt(5), prompt(13)], GREEDY)
        assert (refusal.value.status, refusal.value.code) == (403, "superstition")
        assert len(llm.generate([prompt(5)], GREEDY)[0].outputs[0].token_ids) == 6
    from seam_hooks.hooks import CALLS

    assert CALLS["requests"] == [7, 8, 5, 13, 5]


def test_a_plugin_changes_and_refuses_requests_online(plugins, llama, prompt):
    plugins("hooks")

    async def scenario():
        llm = await AsyncLLM.start(llama, in_process=True, dtype="float32", num_blocks=60)
        try:
            async for output in llm.generate(prompt(7), GREEDY):
                last = output
            with pytest.raises(RequestError, match="thirteen"):
                await llm.submit(GenerationRequest(prompt=prompt(13), params=GREEDY))
            return len(last.outputs[0].token_ids)
        finally:
            await llm.close()

    assert asyncio.run(scenario()) == 3
