"""GTE checkpoints with the names and configurations of its makers, beside transformers' model."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import pytest
import torch
from core_plugin_bert.gte_config import GteConfig, shape
from safetensors.torch import load_file, save_file

from core import LLM, PoolingParams
from core.api import CheckpointError
from core.ops.rotary import inverse_frequencies
from core_testing.tinyencoders import reference_encoder, tiny_encoder

IDS = [5 + 3 * index % 300 for index in range(40)]
RAW = PoolingParams(normalize=False, use_activation=False)
SMALL = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 96,
}


def as_made(directory, architecture, **config):
    """Turn a checkpoint of transformers into one of the makers': another prefix, and other keys."""
    path, stored = directory / "config.json", load_file(directory / "model.safetensors")
    named = {name.replace("gte.", "new.", 1): tensor for name, tensor in stored.items()}
    save_file(named, directory / "model.safetensors", metadata={"format": "pt"})
    kept = {key: value for key, value in json.loads(path.read_text()).items() if key != "rope_parameters"}
    fixed = {"rope_theta": 160_000.0, "pack_qkv": True, "position_embedding_type": "rope"}
    path.write_text(json.dumps({**kept, **fixed, "architectures": [architecture], "model_type": "new", **config}))


def opened(directory):
    return closing(LLM(str(directory), dtype="float32", threads=1))


@pytest.mark.covers("POOL-01")
@pytest.mark.parametrize(("architecture", "rows"), [("NewModel", 0), ("GteNewModel", 1), ("GteModel", 2)])
def test_embeddings_are_those_of_transformers(architecture, rows, tmp_path):
    tiny_encoder(tmp_path, "GteModel", type_vocab_size=rows)
    with torch.no_grad():
        due = reference_encoder("GteModel", type_vocab_size=rows)(torch.tensor([IDS])).last_hidden_state[0].numpy()
    as_made(tmp_path, architecture)
    with opened(tmp_path) as llm:
        found = llm.encode([IDS], RAW, pooling_task="token_embed")[0].outputs.data
        np.testing.assert_allclose(found, due, atol=1e-4 * float(np.abs(due).max()))


@pytest.mark.covers("POOL-02")
def test_a_reranker_scores(tmp_path):
    tiny_encoder(tmp_path, "GteForSequenceClassification", num_labels=1)
    with torch.no_grad():
        due = reference_encoder("GteForSequenceClassification", num_labels=1)(torch.tensor([IDS])).logits[0].numpy()
    as_made(tmp_path, "NewForSequenceClassification", id2label={"0": "LABEL_0"})
    with opened(tmp_path) as llm:
        np.testing.assert_allclose(llm.classify([IDS], RAW)[0].outputs.probs, due, atol=1e-4)


def test_the_makers_rotary_rule():
    """`ntk` multiplies the base by its factor, and divides every frequency by the factor's root for the head."""
    scaling = {"type": "ntk", "factor": 8.0}
    given = {**SMALL, "architectures": ["NewModel"], "rope_theta": 20_000, "rope_scaling": scaling}
    exponents = torch.arange(0, 12, 2, dtype=torch.float32) / 12
    due = 160_000.0**-exponents / 8.0 ** (2 / 12)
    torch.testing.assert_close(inverse_frequencies(GteConfig.read(given).rope)[0], due)
    assert shape(dict(given)).max_positions == 96


def test_the_base_that_a_configuration_lacks_is_that_of_its_code():
    bases = {name: GteConfig.read({**SMALL, "architectures": [name]}).rope.theta for name in ("GteModel", "NewModel")}
    assert bases == {"GteModel": 160_000.0, "NewModel": 10_000.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_norm_type": "rms_norm"},
        {"logn_attention_scale": True},
        {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.6}},
        {"position_embedding_type": "absolute"},
        {"pack_qkv": False},
        {"hidden_size": 0},
    ],
)
def test_what_is_not_carried_out_is_refused(changes):
    with pytest.raises(CheckpointError) as refused:
        shape({**SMALL, "architectures": ["NewModel"], **changes})
    assert refused.value.code == "CORE-M126"
