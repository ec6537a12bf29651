"""sentence-transformers' files beside a checkpoint."""

import json

import pytest
from core_plugin_huggingface.sentence import read_pooling

from core.api.errors import CheckpointError
from core_testing.tinyencoders import sentence_files


def modules(folder, *kinds, path=""):
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "type": kind, "path": path} for kind in kinds]))


def pooling(folder, **config):
    sentence_files(folder)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


def test_a_checkpoint_without_them_says_nothing(tmp_path):
    assert read_pooling(tmp_path) == {}


@pytest.mark.parametrize(
    ("pooling", "method"), [("mean", "mean"), ("cls", "cls"), ("lasttoken", "last"), ("max", "max")]
)
@pytest.mark.parametrize("normalize", [True, False])
def test_the_usual_files(tmp_path, pooling, method, normalize):
    sentence_files(tmp_path, pooling=pooling, normalize=normalize, length=40)
    assert read_pooling(tmp_path) == {"method": method, "normalize": normalize, "max_length": 40}


@pytest.mark.parametrize(("name", "method"), [("mean", "mean"), ("cls", "cls"), ("lasttoken", "last")])
def test_newer_files_have_one_name_instead_of_switches(tmp_path, name, method):
    pooling(tmp_path, pooling_mode=name, embedding_dimension=48)
    assert read_pooling(tmp_path)["method"] == method


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_mean_sqrt_len_tokens": True},
        {"pooling_mode_mean_tokens": True, "include_prompt": False},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode_mean_tokens": False},
        {"pooling_mode": "weightedmean"},
        {},
    ],
)
def test_other_ways_of_pooling_are_refused(tmp_path, config):
    pooling(tmp_path, **config)
    with pytest.raises(CheckpointError, match=r"pooling (by|without)") as refused:
        read_pooling(tmp_path)
    assert refused.value.code == "CORE-M135"


def test_other_modules_are_refused(tmp_path):
    modules(tmp_path, "sentence_transformers.models.Transformer", "sentence_transformers.models.LSTM")
    with pytest.raises(CheckpointError, match="module 'LSTM'") as refused:
        read_pooling(tmp_path)
    assert refused.value.code == "CORE-M135"


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[1]", '[{"path": ""}]', '[{"type": "a.Pooling", "path": "../x"}]'])
def test_files_that_are_wrong_are_told(tmp_path, text):
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(CheckpointError) as refused:
        read_pooling(tmp_path)
    assert refused.value.code == "CORE-M131"


def dense(folder, *more, **config):
    """Modules with a dense layer, and its configuration."""
    given = {"in_features": 48, "out_features": 16, "bias": True, **config}
    sentence_files(folder, normalize=False)
    kinds = [("Transformer", ""), ("Pooling", "1_Pooling"), *more, ("Dense", "2_Dense")]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in kinds]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps(given))


@pytest.mark.parametrize(
    ("named", "activation"),
    [("torch.nn.modules.activation.Tanh", "tanh"), ("torch.nn.modules.linear.Identity", "none"), (None, "none")],
)
def test_a_dense_layer(tmp_path, named, activation):
    dense(tmp_path, activation_function=named)
    layer = {"folder": "2_Dense", "out_features": 16, "activation": activation}
    assert read_pooling(tmp_path) == {"method": "mean", "normalize": False, "dense": [layer]}


@pytest.mark.parametrize(
    ("more", "config", "code"),
    [
        ((), {"activation_function": "my.Own"}, "CORE-M135"),
        ((), {"use_residual": True}, "CORE-M135"),
        ((("Normalize", ""),), {}, "CORE-M135"),
        ((), {"out_features": 0}, "CORE-M131"),
        ((), {"out_features": None}, "CORE-M131"),
    ],
)
def test_dense_layers_that_cannot_be(tmp_path, more, config, code):
    dense(tmp_path, *more, **config)
    with pytest.raises(CheckpointError) as refused:
        read_pooling(tmp_path)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"prompts": {"query": "find: ", "document": ""}}, {"prompts": {"query": "find: ", "document": ""}}),
        (
            {"prompts": {"q": "x "}, "default_prompt_name": "q"},
            {"prompts": {"q": "x "}, "default_prompt": "q"},
        ),
        ({"prompts": {"query": "", "document": ""}, "default_prompt_name": None}, {}),
        ({}, {}),
    ],
)
def test_prompts(tmp_path, given, found):
    sentence_files(tmp_path)
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(given))
    assert read_pooling(tmp_path) == {"method": "mean", "normalize": True, **found}


@pytest.mark.parametrize(
    "given", [{"prompts": ["a"]}, {"prompts": {"a": 5}}, {"prompts": {"a": "b"}, "default_prompt_name": "c"}]
)
def test_prompts_that_are_wrong(tmp_path, given):
    sentence_files(tmp_path)
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(given))
    with pytest.raises(CheckpointError) as refused:
        read_pooling(tmp_path)
    assert refused.value.code == "CORE-M131"
