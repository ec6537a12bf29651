"""A plugin brings operations with their reference forms, kernels for them, and a model that asks for them."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from core import LLM, SamplingParams
from core.api import ConfigError, PluginError
from core.config.resolved import Options
from core.selection.resolver import Resolver
from core_testing.tinymodels import VOCAB_SIZE, tiny_tokenizer

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 60}
REFERENCES = ["seam_mix=reference", "seam_bilinear=reference"]


@pytest.fixture
def mixer(tmp_path):
    """Return a function that writes a checkpoint for the plugin's model."""

    def make(**config) -> str:
        rng = torch.Generator().manual_seed(3)
        size = 32
        shapes = {"embed": (VOCAB_SIZE, size), "head": (VOCAB_SIZE, size), "pair": (size, 32)}
        shapes |= {f"attention.{name}": (size, size) for name in "qkv"}
        tensors = {f"{name}.weight": torch.randn(*shape, generator=rng) for name, shape in shapes.items()}
        save_file(tensors, tmp_path / "model.safetensors")
        config = {"architectures": ["SeamMixer"], "hidden_size": size, "vocab_size": VOCAB_SIZE, **config}
        (tmp_path / "config.json").write_text(json.dumps(config))
        tiny_tokenizer(tmp_path)
        return str(tmp_path)

    return make


def _tokens(model: str, prompt, **options):
    with LLM(model, **OPTIONS, **options) as llm:
        output = llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids
        return output, llm._engine.ready.facts.get("kernels", ""), llm.call("stats")["steps"]


def test_a_model_uses_the_operations_of_its_distribution(plugins, mixer, prompt):
    plugins("operation", "platform")  # on the toy platform no graph stands in for the layers' own calls
    model = mixer()
    plain, told, _ = _tokens(model, prompt, platform="graphbox", kernel=REFERENCES)
    assert "seam_mix" not in told and "seam_bilinear: reference (plain x1)" in told
    from seam_operation.kernels import CALLS

    assert CALLS == {"mix": 0, "bilinear": 0}
    tokens, told, steps = _tokens(model, prompt, platform="graphbox")
    assert tokens == plain
    assert "seam_mix=quick_mix" in told and "seam_bilinear: quick_bilinear (plain x1)" in told
    assert CALLS["mix"] == CALLS["bilinear"] >= steps


def test_without_a_kernel_that_fits_the_reference_form_serves(plugins, mixer, prompt):
    plugins("operation")
    tokens, *_ = _tokens(mixer(), prompt, kernel=REFERENCES)
    with LLM(mixer(), **{**OPTIONS, "dtype": "bfloat16"}) as llm:  # the kernels are for float32
        assert "seam_bilinear: reference" in llm._engine.ready.facts["kernels"]
        assert len(llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids) == len(tokens)


@pytest.mark.parametrize(
    ("kernel", "error", "text"),
    [
        (["seam_mix=wide_mix"], PluginError, r"CORE-P201 kernel 'wide_mix' .*size 32 is outside 4096 to any"),
        (["seam_mix=quick_bilinear"], PluginError, r"CORE-P201 .*is one of seam_bilinear, not of seam_mix"),
        (["seam_mixx=quick_mix"], ConfigError, r"CORE-C142 .*'seam_mixx'.*seam_mix"),
    ],
)
def test_commands_for_operations_of_plugins_are_held_to(plugins, mixer, kernel, error, text):
    plugins("operation")
    with pytest.raises(error, match=text):
        LLM(mixer(), **OPTIONS, kernel=kernel)


@pytest.mark.parametrize("second", ["reference", "quick_mix"])
def test_a_second_choice_serves_where_the_first_refuses_the_sizes(plugins, mixer, prompt, second):
    plugins("operation")
    _, told, _ = _tokens(mixer(), prompt, kernel=["seam_mix=wide_mix", second])
    assert ("seam_mix=quick_mix" in told) == (second == "quick_mix") and "wide_mix" not in told


@pytest.mark.parametrize(
    ("op", "text"),
    [("seam_blend", "CORE-P237 .*'seam_blend'.*known are .*seam_mix"), ("seam_bilinear", "CORE-P238 .*seam_bilinear")],
)
def test_a_model_that_asks_for_the_wrong_operation_is_told(plugins, mixer, op, text):
    plugins("operation")
    with pytest.raises(PluginError, match=text):
        LLM(mixer(mixing=op), **OPTIONS)


def test_operations_of_plugins_are_in_the_report_and_in_the_plan(plugins, mixer):
    plugins("operation")
    options = Options.model_validate(
        {"model": {"model": mixer(), "dtype": "float32"}, "select": {"kernel": REFERENCES}}
    )
    resolution = Resolver(options).run()
    kernels = {one.name: one.reference_only for one in resolution.config.plan.of("core.kernels")}
    seams = {name: alone for name, alone in kernels.items() if not name.startswith("cpu_")}
    assert set(seams.values()) == {True} and "quick_bilinear" in seams  # for the sake of the reference forms
    (told,) = [one.to_dict() for one in resolution.reports if one.subject.startswith("weights plain")]
    assert told["how"].startswith("linear: ") and "reference" in [row["name"] for row in told["candidates"]]
    names = {row.name for report in resolution.reports for row in report.rows if report.group == "core.kernels"}
    assert {"quick_mix", "wide_mix", "quick_bilinear"} <= names
