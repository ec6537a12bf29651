"""Tokens that a configuration makes classes of: their ids come from the checkpoint's tokenizer."""

from __future__ import annotations

import json

import pytest

from core.api import CheckpointError
from core.api.weights import CheckpointInfo
from core.selection.token_classes import with_token_ids

PIECES = {"a": 0, "no": 1, "yes": 2}
FORMS = {
    "pairs": {"model": {"vocab": PIECES}},
    "scores": {"model": {"vocab": [[piece, -1.0] for piece in PIECES]}},
    "added": {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": "no"}, {"id": 2, "content": "yes"}]},
}


def checkpoint(path, **config):
    return CheckpointInfo(path=str(path), format="safetensors", architecture="A", config=config)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file", ["", "model.gguf"])
def test_texts_are_looked_up_in_the_tokenizer(form, file, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(FORMS[form]))
    if file:
        (tmp_path / file).touch()
    given = checkpoint(tmp_path / file, classifier_from_token=["no", "yes", 7])
    assert with_token_ids(given).config == {**given.config, "classifier_token_ids": [1, 2, 7]}


def test_without_tokens_or_with_ids_alone_nothing_is_read(tmp_path):
    plain = checkpoint(tmp_path, hidden_size=8)
    assert with_token_ids(plain) is plain
    assert with_token_ids(checkpoint(tmp_path, classifier_from_token=[3])).config["classifier_token_ids"] == [3]


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (["maybe"], "no token 'maybe'"),
        ([], "must be a list"),
        ("yes", "must be a list"),
        ([True], "must be a list"),
        ({"no": 1}, "must be a list"),
    ],
)
def test_what_names_no_token_is_refused(tokens, said, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(FORMS["pairs"]))
    with pytest.raises(CheckpointError, match=said) as refused:
        with_token_ids(checkpoint(tmp_path, classifier_from_token=tokens))
    assert refused.value.code == "CORE-M126"


@pytest.mark.parametrize("text", [None, "{", '{"model": {}}', "[]"])
def test_a_tokenizer_that_cannot_be_read_is_named(text, tmp_path):
    if text is not None:
        (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read"):
        with_token_ids(checkpoint(tmp_path, classifier_from_token=["no"]))
