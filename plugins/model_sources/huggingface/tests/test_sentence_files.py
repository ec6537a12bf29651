"""sentence-transformers' files beside a checkpoint."""

import json

import pytest
from core_plugin_huggingface.sentence import read_pooling

from core.api.errors import CheckpointError
from core.testing.tinyencoders import sentence_files


def modules(folder, *kinds, path=""):
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "type": kind, "path": path} for kind in kinds]))


def pooling(folder, **config):
    sentence_files(folder)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))


def test_a_checkpoint_without_them_says_nothing(tmp_path):
    assert read_pooling(tmp_path) == {}


@pytest.mark.parametrize(("pooling", "method"), [("mean", "mean"), ("cls", "cls"), ("lasttoken", "last")])
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
        {"pooling_mode_max_tokens": True},
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        {"pooling_mode_mean_tokens": False},
        {"pooling_mode": "weightedmean"},
        {},
    ],
)
def test_other_ways_of_pooling_are_refused(tmp_path, config):
    pooling(tmp_path, **config)
    with pytest.raises(CheckpointError, match="pooling by") as refused:
        read_pooling(tmp_path)
    assert refused.value.code == "CORE-M135"


def test_other_modules_are_refused(tmp_path):
    modules(tmp_path, "sentence_transformers.models.Transformer", "sentence_transformers.models.Dense")
    with pytest.raises(CheckpointError, match="module 'Dense'") as refused:
        read_pooling(tmp_path)
    assert refused.value.code == "CORE-M135"


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[1]", '[{"path": ""}]', '[{"type": "a.Pooling", "path": "../x"}]'])
def test_files_that_are_wrong_are_told(tmp_path, text):
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(CheckpointError) as refused:
        read_pooling(tmp_path)
    assert refused.value.code == "CORE-M131"
