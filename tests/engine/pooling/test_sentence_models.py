"""What sentence-transformers' files say beyond the way of pooling: dense layers, prompts, vectors for each token."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from core import PoolingParams
from core.api.errors import CheckpointError, RequestError
from core_testing.tinyencoders import sentence_files

QUERY = "the engine reads long prompts"


def write_modules(directory, *kinds):
    """Write `modules.json` with `(type, folder)` pairs."""
    listed = [{"idx": place, "type": kind, "path": folder} for place, (kind, folder) in enumerate(kinds)]
    (directory / "modules.json").write_text(json.dumps(listed))


def write_dense(directory, name, inputs, outputs, activation, *, bias=True, seed=1):
    """Write a dense module with random weights; return it as a function of numpy arrays."""
    folder = directory / name
    folder.mkdir()
    config = {"in_features": inputs, "out_features": outputs, "bias": bias, "activation_function": activation}
    (folder / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(seed)
    tensors = {"linear.weight": torch.randn(outputs, inputs, generator=random) / 4}
    if bias:
        tensors["linear.bias"] = torch.randn(outputs, generator=random)
    save_file(tensors, folder / "model.safetensors")
    act = np.tanh if activation.endswith("Tanh") else lambda x: x
    return lambda x: act(x @ tensors["linear.weight"].numpy().T + (tensors["linear.bias"].numpy() if bias else 0))


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.covers("POOL-02")
def test_dense_layers_follow_pooling(encoder, opened, hidden, texts):
    directory, reference = encoder()
    sentence_files(directory, pooling="max")
    base = "sentence_transformers.models."
    write_modules(
        directory,
        (f"{base}Transformer", ""),
        (f"{base}Pooling", "1_Pooling"),
        (f"{base}Dense", "2_Dense"),
        (f"{base}Dense", "3_Dense"),
        (f"{base}Normalize", "4_Normalize"),
    )
    first = write_dense(directory, "2_Dense", 48, 64, "torch.nn.modules.activation.Tanh")
    second = write_dense(directory, "3_Dense", 64, 24, "torch.nn.modules.linear.Identity", bias=False, seed=2)
    llm = opened(directory)
    for output in llm.embed(texts):
        states = hidden(reference, output.prompt_token_ids).numpy()
        np.testing.assert_allclose(output.outputs.array, unit(second(first(states.max(0)))), atol=1e-4)
    (tokens,) = llm.encode(texts[0], PoolingParams(normalize=False), pooling_task="token_embed")
    assert tokens.outputs.data.shape == (len(tokens.prompt_token_ids), 48)  # tokens are as the encoder gives them
    assert len(llm.embed(texts[0], PoolingParams(dimensions=24))[0].outputs.array) == 24
    save_file({"linear.bias": torch.zeros(64)}, directory / "2_Dense" / "model.safetensors")
    with pytest.raises(CheckpointError, match="CORE-M136"):
        opened(directory)


@pytest.mark.covers("POOL-02")
def test_prompts_of_the_makers(encoder, opened):
    directory, _ = encoder()
    sentence_files(directory)
    plain = opened(directory)
    prompts = {"query": "the server ", "document": "memory ", "other": ""}
    given = {"prompts": prompts, "default_prompt_name": "document"}
    (directory / "config_sentence_transformers.json").write_text(json.dumps(given))
    llm = opened(directory)

    def vector(model, text, **params):
        return model.embed(text, PoolingParams(**params))[0].outputs.array

    ids = plain.get_tokenizer().encode(QUERY)
    cases = {None: "memory ", "query": "the server ", "document": "memory ", "other": "", "": ""}
    for name, front in cases.items():
        expected = vector(plain, front + QUERY)
        np.testing.assert_allclose(vector(llm, QUERY, prompt_name=name), expected, atol=1e-6)
        np.testing.assert_allclose(vector(llm, {"prompt": QUERY}, prompt_name=name), expected, atol=1e-6)
        np.testing.assert_allclose(vector(llm, ids, prompt_name=name), vector(plain, ids), atol=1e-6)
    score = llm.score(QUERY, "a worker")[0].outputs.score
    expected = vector(plain, "the server " + QUERY) @ vector(plain, "memory a worker")
    assert score == pytest.approx(float(expected), abs=1e-5)
    with pytest.raises(RequestError, match="no prompt 'mine'; it has query, document, other") as refused:
        llm.embed(QUERY, PoolingParams(prompt_name="mine"))
    assert refused.value.param == "prompt_name"


def max_similarity(query, document):
    """Each token of the query with the nearest of the document."""
    return sum(max(float(one @ other) for other in unit(document)) for one in unit(query))


@pytest.mark.covers("POOL-02")
@pytest.mark.parametrize("form", ["modules", "HF_ColBERT"])
def test_late_interaction(form, encoder, opened, hidden, texts):
    directory, reference = encoder()
    if form == "modules":
        write_modules(directory, ("sentence_transformers.models.Transformer", ""), ("pylate.models.Dense.Dense", "1_D"))
        project = write_dense(directory, "1_D", 48, 20, "torch.nn.modules.linear.Identity", bias=False)
    else:
        state = {f"bert.{name}": tensor for name, tensor in load_file(directory / "model.safetensors").items()}
        weight = torch.randn(20, 48, generator=torch.Generator().manual_seed(1)) / 4
        save_file({**state, "linear.weight": weight}, directory / "model.safetensors")
        config = json.loads((directory / "config.json").read_text())
        config |= {"architectures": ["HF_ColBERT"], "dim": 20}
        (directory / "config.json").write_text(json.dumps(config))

        def project(states):
            return states @ weight.numpy().T

    llm = opened(directory)
    tokens = llm.encode([QUERY, *texts])
    expected = [project(hidden(reference, output.prompt_token_ids).numpy()) for output in tokens]
    for output, states in zip(tokens, expected, strict=True):
        np.testing.assert_allclose(output.outputs.data, unit(states), atol=1e-4)
    scores = [output.outputs.score for output in llm.score(QUERY, texts)]
    np.testing.assert_allclose(scores, [max_similarity(expected[0], one) for one in expected[1:]], atol=1e-3)
    pairs = [output.outputs.score for output in llm.score([QUERY, texts[0]], texts[:2])]
    np.testing.assert_allclose(pairs, [scores[0], max_similarity(expected[1], expected[2])], atol=1e-3)
    with pytest.raises(RequestError, match="cannot embed: it can token_embed, score"):
        llm.embed(QUERY)
