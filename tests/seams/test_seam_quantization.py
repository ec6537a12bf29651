"""A format that nobody has heard of, written from the guide alone: the kit passes it, and a model has its tokens."""

from __future__ import annotations

import json
import shutil

import pytest

from core import LLM, SamplingParams
from core.api import CoreError

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
OPTIONS = {"dtype": "float32", "num_blocks": 60}


@pytest.fixture
def checkpoints(plugins, llama, tmp_path):
    """The checkpoint in pairs, and its twin of plain weights."""
    plugins("quantization")
    from safetensors.torch import load_file, save_file
    from seam_quantization.conformance import stored

    files, meant = {}, {}
    for name, weight in load_file(f"{llama}/model.safetensors").items():
        module, suffix = name.rsplit(".", 1)
        linear = module.rpartition(".")[2] in LINEAR
        tensors, meant[name] = stored(weight.float()) if linear else ({suffix: weight}, weight)
        files |= {f"{module}.{key}": value for key, value in tensors.items()}
    described = {"quantization_config": {"quant_method": "pairs48", "group": 48}}
    for folder, tensors, more in (("pairs", files, described), ("twin", meant, {})):
        shutil.copytree(llama, tmp_path / folder)
        config = json.loads((tmp_path / folder / "config.json").read_text())
        (tmp_path / folder / "config.json").write_text(json.dumps({**config, **more}))
        save_file(tensors, tmp_path / folder / "model.safetensors", metadata={"format": "pt"})
    return tmp_path


def tokens(path, prompt, **options):
    with LLM(str(path), **OPTIONS, **options) as llm:
        return llm.generate([prompt], GREEDY)[0].outputs[0].token_ids


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("kernel", [["linear=reference", "lookup=reference"], []])
def test_its_tokens_are_those_of_the_opened_weights(checkpoints, prompt, kernel):
    plain = tokens(checkpoints / "twin", prompt(13), kernel=kernel)
    assert tokens(checkpoints / "pairs", prompt(13), kernel=kernel) == plain and len(set(plain)) > 2


def test_what_it_does_not_read_is_refused_with_its_reason(checkpoints):
    file = checkpoints / "pairs" / "config.json"
    file.write_text(file.read_text().replace('"group": 48', '"group": 47'))
    with pytest.raises(CoreError, match="groups of 47, not 48") as caught:
        LLM(str(checkpoints / "pairs"), **OPTIONS)
    assert caught.value.code == "CORE-P203"


def test_the_kit_passes_it(plugins):
    from core_testing.conformance import run
    from core_testing.conformance.table import checks_of

    plugins("quantization")
    (report,) = run("seam-quantization", checks=tuple(one.name for one in checks_of("quantization"))).plugins
    assert [(one.check, one.message) for one in report.failures] == []
    passed = {one.check for one in report.outcomes if one.status == "passed"}
    assert {"parts_open_to_what_is_meant", "every_tensor_is_named", "linear_equals_dequantized"} <= passed
