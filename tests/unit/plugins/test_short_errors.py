"""Errors about names and files that are not known: what it is, what is near it, what to do, in a few lines."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from core.api.errors import CoreError
from core.config.resolved import Options
from core.plugins.catalog import Catalogue
from core.selection.resolver import resolve

LONGEST = 800
"""Characters: five lines of 140."""


def refusal(model, **select):
    with pytest.raises(CoreError) as caught:
        resolve(Options.model_validate({"model": {"model": str(model)}, "select": select}), catalogue=Catalogue.scan())
    return caught.value


@pytest.fixture
def folder(tmp_path):
    """Makes a folder of files by their content."""

    def make(**files):
        for name, content in files.items():
            (tmp_path / name.replace("__", ".")).write_text(content)
        return tmp_path

    return make


def of_architecture(folder, name):
    made = folder(config__json=json.dumps({"architectures": [name], "model_type": "x"}))
    save_file({"weight": torch.zeros(2)}, made / "model.safetensors")
    return made


def gguf_file(folder, architecture):
    path = folder() / "model.gguf"
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("architecture", "near", "advice"),
    [
        ("Qwen3VLForCausalLM", "Qwen3ForCausalLM (llama, core-plugin-llama", "Install a model plugin"),
        ("RobertaForCausalLM", "RobertaForMaskedLM (bert, core-plugin-bert", "Install a model plugin"),
        ("Xyzzy", None, "Install a model plugin"),
    ],
)
def test_an_architecture_that_nobody_implements(folder, architecture, near, advice):
    error = refusal(of_architecture(folder, architecture))
    assert error.code == "CORE-M103" and architecture in error.message and advice in error.hint
    assert near in error.message if near else "nearest" not in error.message
    assert len(str(error)) < LONGEST and "Masked" not in error.message.replace("RobertaForMaskedLM", "")


@pytest.mark.parametrize(
    ("architecture", "advice"),
    [
        ("nanbeige", "(core-plugin-nanbeige 0.1.0) implements NanbeigeForCausalLM: give its safetensors files."),
        ("refact", "No installed plugin implements GPTRefactForCausalLM from files of another format either."),
        ("frob", "Give another model"),
    ],
)
def test_a_gguf_file_is_not_told_of_a_format_that_would_be_refused_too(folder, architecture, advice):
    error = refusal(gguf_file(folder, architecture))
    assert error.code == "CORE-M140" and advice in error.hint and len(str(error)) < LONGEST
    assert f"architecture {architecture} cannot be read from GGUF; those of" in error.message


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"model__bin": "", "config__json": "{}", "vocabulary__json": "[]"}, "a CTranslate2 model"),
        ({"model__bin": "", "config__json": "{}", "shared_vocabulary__txt": ""}, "a CTranslate2 model"),
        ({"model__onnx": "", "config__json": "{}"}, "an ONNX model"),
        ({"openvino_model__xml": "", "openvino_model__bin": ""}, "an OpenVINO model"),
        ({"rank0__engine": "", "config__json": "{}"}, "a TensorRT engine"),
        ({"tf_model__h5": "", "config__json": "{}"}, "a TensorFlow or Keras model"),
        ({"flax_model__msgpack": ""}, "a Flax model"),
        ({"consolidated.00__pth": "", "params__json": "{}"}, "pickled files"),
        ({"pytorch_model__bin": ""}, "pickled files"),
    ],
)
def test_a_format_that_no_plugin_reads_is_called_by_its_name(folder, files, what):
    error = refusal(folder(**files))
    assert error.code == "CORE-M102" and what in error.hint and "safetensors" in error.hint
    assert "again" not in str(error) and len(str(error)) < LONGEST


@pytest.mark.parametrize(("name", "meant"), [("smolm2", "smollm2"), ("mini-lm", "minilm"), ("xyzzy", None)])
def test_a_model_name_that_is_a_slip(name, meant):
    error = refusal(name)
    assert error.code == "CORE-M101" and (
        f"Did you mean '{meant}'?" in error.hint if meant else "Did" not in error.hint
    )


@pytest.mark.parametrize(
    ("flag", "name", "code", "said"),
    [
        ("tool_parser", "hermesx", "CORE-P101", "Did you mean 'hermes'?"),
        ("tool_parser", "beam", "CORE-P201", "the checkpoint has no response_template"),
        ("attention_backend", "torch-sdpa", "CORE-P101", "Did you mean 'torch_sdpa'?"),
    ],
)
def test_a_plugin_name_is_not_answered_with_all_that_is_installed(flag, name, code, said):
    error = refusal("smollm2", **{flag: name})
    assert error.code == code and said in str(error) and len(str(error)) < LONGEST
