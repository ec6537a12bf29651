"""Every family: its configuration alone, and files that do not belong to it."""

from __future__ import annotations

import json
import shutil
from contextlib import closing

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from core.api.errors import CoreError
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve


def plan(directory, impl=None, **select):
    options = Options(
        model=ModelOptions(model=str(directory), dtype="float32", max_model_len=64),
        kv=KVOptions(num_blocks=20),
        runtime=RuntimeOptions(threads=1),
        select=SelectOptions(model_impl=impl, **select),
    )
    return resolve(options)


def answer(resolution):
    """Return three greedy tokens, as bytes."""
    with closing(open_sync(resolution.config)) as engine:
        params = SamplingParams(max_tokens=3, temperature=0.0)
        engine.send(Add(handle=0, prompt=np.array([5, 6, 7], "<i4").tobytes(), params=params))
        return b"".join(outputs.tokens for found in iter(engine.step, []) for outputs in found)


@pytest.mark.covers("MODEL-01")
def test_a_configuration_says_the_sizes_of_the_weights(made):
    """Each size that the shape states is that of a tensor of the checkpoint, and there are some."""
    shape = plan(made.directory, made.row.model_impl).config.shape
    with safe_open(made.directory / "model.safetensors", "pt") as file:
        sizes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    found = 0
    for weight in shape.weights:
        due = tuple(size for _, size in weight.dims)
        for layer in range(shape.num_layers if "{}" in weight.name else 1):
            ending = weight.name.format(layer)
            names = [name for name in sizes if name == ending or name.endswith(f".{ending}")]
            found += len(names)
            assert all(sizes[name] == due for name in names), (ending, due)
    assert found > 3 or made.row.model_impl is not None  # one that takes any architecture states no sizes


@pytest.mark.covers("MODEL-02")
@pytest.mark.exhaustive
def test_a_configuration_alone_runs_with_made_up_weights(made, tmp_path):
    directory = tmp_path / "bare"
    shutil.copytree(made.directory, directory, ignore=shutil.ignore_patterns("*.safetensors"))
    answers = [answer(plan(directory, made.row.model_impl, load_format="dummy")) for _ in "ab"]
    assert answers[0] == answers[1] and len(answers[0]) == 3 * 4


@pytest.mark.covers("MODEL-02")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("missing", marks=pytest.mark.exhaustive),
        pytest.param("surplus", marks=pytest.mark.exhaustive),
        "misshapen",
    ],
)
def test_wrong_tensors_are_named_in_one_line(made, fault, tmp_path):
    directory = tmp_path / "broken"
    shutil.copytree(made.directory, directory)
    tensors = load_file(directory / "model.safetensors")
    # A tensor that holds the weights of all experts is named by its parts.
    names = [name for name in tensors if ".1." in name and name.endswith("weight") and tensors[name].ndim < 3]
    name = sorted(names)[0]
    if fault == "missing":
        del tensors[name]
    elif fault == "surplus":
        name = "model.layers.1.extra.weight"
        tensors[name] = tensors[next(iter(tensors))].clone()
    else:
        tensors[name] = tensors[name].flatten()[:-1].clone()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CoreError) as caught:
        open_sync(plan(directory, made.row.model_impl).config).close()
    assert name.removesuffix(".weight") in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.covers("MODEL-02")
@pytest.mark.exhaustive
def test_several_shards_are_one_model(made, tmp_path):
    """The tokens of a checkpoint in three files, whose index is as the hub's have it."""
    directory = tmp_path / "sharded"
    shutil.copytree(made.directory, directory)
    whole = directory / "model.safetensors"
    tensors = load_file(whole)
    whole.unlink()
    places = {}
    for number in range(3):
        name = f"model-{number + 1:05}-of-00003.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number::3]}
        save_file(part, directory / name, metadata={"format": "pt"})
        places |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": places}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    found = [answer(plan(one, made.row.model_impl)) for one in (directory, made.directory)]
    assert found[0] == found[1]


@pytest.mark.covers("MODEL-01")
@pytest.mark.exhaustive
def test_the_architecture_is_found(made):
    config = json.loads((made.directory / "config.json").read_text())
    found = plan(made.directory, made.row.model_impl).config.checkpoint.architecture
    assert found == config["architectures"][0] == made.row.architecture
