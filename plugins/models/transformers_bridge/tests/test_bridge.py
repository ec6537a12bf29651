"""The bridge: when it is chosen, what it refuses, and that it answers as a family of its own does."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
from core_plugin_transformers_bridge.eligible import eligible
from core_plugin_transformers_bridge.shape import shape

from core.api.errors import CheckpointError, CoreError
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.families import TinyFamily

BRIDGE = "transformers-bridge"
PROMPTS = [[5, 6, 7, 8] * 6, [40, 41, 42, 9, 5, 6]]


def options(directory, impl=None, chunk=None, dtype="float32", **select):
    return Options(
        model=ModelOptions(model=str(directory), dtype=dtype, max_model_len=64),
        kv=KVOptions(num_blocks=20),
        runtime=RuntimeOptions(threads=1),
        scheduler=SchedulerOptions(max_chunk=chunk),
        select=SelectOptions(model_impl=impl, **select),
    )


def row(architecture, kind, **config):
    return TinyFamily(kind, architecture, {"model_type": kind, **config})


def answers(config, count=6):
    """Return the greedy answers to the prompts, all at once."""
    with closing(open_sync(config)) as engine:
        for handle, prompt in enumerate(PROMPTS):
            params = SamplingParams(max_tokens=count, temperature=0.0)
            engine.send(Add(handle=handle, prompt=np.array(prompt, "<i4").tobytes(), params=params, stop_ids=[]))
        texts = {handle: [] for handle in range(len(PROMPTS))}
        while found := engine.step():
            for outputs in found:
                for handle, token in zip(
                    np.frombuffer(outputs.handles, "<i8").tolist(),
                    np.frombuffer(outputs.tokens, "<i4").tolist(),
                    strict=True,
                ):
                    texts[handle].append(token)
    return texts


def model_report(resolution):
    return next(report for report in resolution.reports if report.group == "core.models")


LLAMA = row("LlamaForCausalLM", "llama")
NATIVE = [
    LLAMA,
    row("Qwen3ForCausalLM", "qwen3", head_dim=20),
    row("GraniteForCausalLM", "granite", embedding_multiplier=3.0, logits_scaling=4.0, residual_multiplier=0.6),
    row(
        "Gemma2ForCausalLM",
        "gemma2",
        head_dim=20,
        sliding_window=16,
        query_pre_attn_scalar=20,
        attn_logit_softcapping=30.0,
        final_logit_softcapping=20.0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
]


@pytest.mark.parametrize("native", NATIVE, ids=lambda one: one.name)
def test_it_answers_as_the_family_does_and_is_not_chosen_over_it(native, tmp_path):
    directory = native.write(tmp_path / "model")
    own, bridged = resolve(options(directory)), resolve(options(directory, BRIDGE, chunk=7))
    assert own.config.plan.one("core.models").name != BRIDGE
    rows = {row.name: row for row in model_report(own).rows}
    assert rows[BRIDGE].state == "rejected" and "last resort" in rows[BRIDGE].reasons[0]
    assert bridged.config.plan.one("core.models").name == BRIDGE
    assert answers(own.config) == answers(bridged.config)


def test_it_is_not_chosen_where_the_family_refuses_the_configuration(tmp_path):
    directory = LLAMA.write(tmp_path / "model")
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rope_parameters": {"rope_type": "an invention"}}))
    with pytest.raises(CoreError) as caught:
        resolve(options(directory))
    assert BRIDGE not in caught.value.message


def test_it_is_chosen_where_no_family_is_installed_and_says_what_it_costs(tmp_path):
    directory = LLAMA.write(tmp_path / "model")
    resolution = resolve(options(directory, disable_plugin=["core-plugin-llama"]))
    report = model_report(resolution)
    assert report.chosen.entry.name == BRIDGE
    assert any("last resort" in note and "slower" in note for note in report.notes)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("MambaForCausalLM", "its own attention cannot be replaced"),
        ("BloomForCausalLM", "its own attention cannot be replaced"),
        ("Lfm2ForCausalLM", "recurrent state or a convolution"),
        ("BertLMHeadModel", "is_decoder"),
        ("Gemma3ForConditionalGeneration", "more than text"),
        ("T5ForConditionalGeneration", "no causal language model"),
        ("NobodysForCausalLM", "no class of transformers"),
    ],
)
def test_architectures_that_cannot_be_bridged_are_refused_with_the_reason(architecture, reason):
    verdict = eligible(architecture)
    assert reason in " ".join(verdict.reasons)
    with pytest.raises(CheckpointError, match="CORE-M210") as caught:
        shape({"architectures": [architecture]})
    assert reason in caught.value.message


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"layer_types": ["full_attention", "linear_attention"]}, "layers of the type linear_attention"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic' depends on"),
        ({"add_cross_attention": True}, "'add_cross_attention' is set"),
        ({"num_attention_heads": "four"}, "'num_attention_heads' is 'four'"),
    ],
)
def test_configurations_that_cannot_be_bridged_are_refused_with_the_reason(config, reason):
    with pytest.raises(CheckpointError, match="CORE-M211") as caught:
        shape({"architectures": ["Qwen3ForCausalLM"], **config})
    assert reason in caught.value.message


def test_defaults_and_other_names_of_keys_are_those_of_the_class():
    found = shape({"architectures": ["GPT2LMHeadModel"], "n_layer": 3})
    assert (found.num_layers, found.hidden_size, found.head_dim, found.layers_key) == (3, 768, 64, "n_layer")


def test_nothing_of_it_imports_torch_before_the_engine_starts():
    code = (
        "import sys; from core_plugin_transformers_bridge.shape import shape;"
        "shape({'architectures': ['Qwen3ForCausalLM']}); assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_architecture_is_told_as_ever_and_why_it_is_not_bridged(tmp_path):
    directory = LLAMA.write(tmp_path / "model")
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": ["LamaForCausalLM"]}))
    with pytest.raises(CheckpointError, match="CORE-M103") as caught:
        resolve(options(directory))
    assert "LlamaForCausalLM" in caught.value.message and "no class of transformers" in caught.value.message


def test_a_model_that_attends_in_its_own_way_is_refused_before_its_weights_are_read(tmp_path):
    directory = row("DiffLlamaForCausalLM", "diffllama").write(tmp_path / "model")
    with pytest.raises(CheckpointError, match="CORE-M212"):
        open_sync(resolve(options(directory, BRIDGE)).config).close()


def test_weights_that_are_rounded_while_they_are_loaded(tmp_path):
    """Linear layers are core's, so that formats of weights are those of any model."""
    directory = LLAMA.write(tmp_path / "model")
    found = [answers(resolve(options(directory, impl, quantization="int8")).config) for impl in (None, BRIDGE)]
    assert found[0] == found[1]


def test_compute_in_bfloat16(tmp_path):
    directory = row("HeliumForCausalLM", "helium", head_dim=20).write(tmp_path / "model")
    assert len(answers(resolve(options(directory, BRIDGE, dtype="bfloat16")).config)[0]) == 6
