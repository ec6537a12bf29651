"""A configuration that describes another model than its files is refused while plugins are chosen, by file and key."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.api import CheckpointError, CheckpointInfo, ModelShape, WeightShape
from core.cli.main import main
from core.config.resolved import Options
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core.selection.weight_sizes import require_fitting
from core_testing.tinymodels import tiny_llama

REFUSED = {
    "rows": ({"vocab_size": 512}, "CORE-M200", "'vocab_size' 512"),
    "layers": ({"num_hidden_layers": 4}, "CORE-M200", "'num_hidden_layers' is 4"),
    "heads": ({"num_attention_heads": 8, "head_dim": 16}, "CORE-M200", "'num_attention_heads * head_dim' 128"),
    "2**31": ({"intermediate_size": 2**31}, "CORE-M126", "'intermediate_size' is 2147483648"),
    "10**30": ({"hidden_size": 10**30}, "CORE-M126", "'hidden_size' is 1000"),
    "many layers": ({"num_hidden_layers": 100_000}, "CORE-M126", "'num_hidden_layers' is 100000"),
    "context": ({"max_position_embeddings": 2**31}, "CORE-M126", "'max_position_embeddings' is 2147483648"),
    "NaN": ({"rms_norm_eps": float("nan")}, "CORE-M126", "'rms_norm_eps' is nan"),
    "base 0": ({"rope_parameters": {"rope_type": "default", "rope_theta": 0}}, "CORE-M126", "'rope_theta' is 0"),
    "base -1": ({"rope_parameters": {"rope_type": "default", "rope_theta": -1}}, "CORE-M126", "'rope_theta' is -1"),
    "dtype": ({"dtype": "float42"}, "CORE-M126", "'dtype' is 'float42'"),
    "end": ({"eos_token_id": [2, 384]}, "CORE-M202", "'eos_token_id' is 384"),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("plain") / "llama")


@pytest.fixture
def copied(plain, tmp_path):
    """`copied(**changes)` -> a checkpoint with another `config.json` and the same weights."""

    def make(**changes):
        for file in plain.iterdir():
            if file.name != "config.json":
                os.link(file, tmp_path / file.name)
        config = json.loads((plain / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        return tmp_path

    return make


@pytest.mark.parametrize("name", REFUSED)
def test_a_size_is_refused_by_file_and_key(copied, name, capsys):
    changes, code, words = REFUSED[name]
    folder = copied(**changes)
    assert main(["plugins", "why", str(folder)]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if code in line]
    assert f"{folder}/config.json: " in line and words in line


def test_integers_are_no_weights(copied):
    folder = copied()
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    name = "model.layers.1.mlp.up_proj.weight"
    save_file({**tensors, name: tensors[name].to(torch.int32)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"CORE-M201 {folder}: the weight '{name}' is stored as int32"):
        resolve(Options(model=ModelOptions(model=str(folder))))


def test_a_header_of_minus_one_byte_is_refused(copied):
    file = copied() / "model.safetensors"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(b"\xff" * 8 + content[8:])
    with pytest.raises(CheckpointError, match=f"CORE-M130 {file}: its header should be 18446744073709551615 bytes"):
        resolve(Options(model=ModelOptions(model=str(file.parent))))


def fitting(tensors, *weights, layers=1, quantization="none"):
    sizes = {"vocab_size": 8, "max_positions": 8, "hidden_size": 4, "num_heads": 1, "num_kv_heads": 1, "head_dim": 4}
    shape = ModelShape(num_layers=layers, weights=weights, layers_key="n_layer", **sizes)
    info = CheckpointInfo(path="w", format="f", architecture="A", config={}, tensors=tensors, quantization=quantization)
    require_fitting(info, shape)


UP = WeightShape(name="layers.{}.up.weight", dims=(("inner", 6), ("hidden", 4)))


def test_names_are_found_in_whatever_module_they_are():
    for prefix in ("", "model.", "a.model."):
        fitting({f"{prefix}layers.0.up.weight": ((6, 4), "bfloat16")}, UP)
        with pytest.raises(CheckpointError, match="with 'hidden' 4 the tensor"):
            fitting({f"{prefix}layers.0.up.weight": ((6, 5), "gguf:Q4_0")}, UP)


def test_a_layer_may_have_sizes_of_its_own():
    own = WeightShape(name="layers.1.up.weight", dims=(("inner", 10), ("hidden", 4)))
    fitting({"model.layers.1.up.weight": ((10, 4), "float32"), "model.layers.0.up.weight": ((6, 4), "float32")}, own)
    with pytest.raises(CheckpointError, match=r"with 'inner' 10 the tensor 'model\.layers\.1\.up\.weight'"):
        fitting({"model.layers.1.up.weight": ((6, 4), "float32")}, own)


def test_every_layer_has_tensors():
    held = {"layers.0.up.weight": ((6, 4), "float32")}
    with pytest.raises(CheckpointError, match="CORE-M200 w: 'n_layer' is 2, but w has no tensors for layer 1"):
        fitting(held, UP, layers=2)
    fitting(held, layers=2)  # of a model that names no tensors of layers: its layers may have none
    fitting({}, layers=2)  # a format whose header tells none


def test_codes_are_held_against_the_bits_that_there_are():
    fitting({"layers.0.up.qweight": ((1,), "int32")}, UP, quantization="q")
    with pytest.raises(CheckpointError, match=r"'inner' 6 and 'hidden' 4 the layer 'layers[.]0[.]up' has more"):
        fitting({"layers.0.up.qweight": ((1,), "int16")}, UP, quantization="q")
