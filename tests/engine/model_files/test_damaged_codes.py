"""A damaged quantized checkpoint of each method is refused in one line that names its files and the tensor."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from core import LLM
from core.api import CoreError

sys.path.insert(0, str(Path(__file__).parent))
from quantized import FORMS, quantized, some

MODULE = "model.layers.1.mlp.down_proj."
TABLES = ("quant_map", "bitsandbytes__nf4", "bitsandbytes__fp4")
"""Names of what is no scale: values of codes, and descriptions."""


def refused(path):
    """The one line in which a start is refused."""
    with pytest.raises(CoreError) as error:
        LLM(str(path), dtype="float32", num_blocks=9, block_size=16, threads=1)
    text = str(error.value)
    assert "\n" not in text and str(path) in text, text
    return text


def rewritten(path, changes):
    """Put other tensors in the place of those of these names."""
    file = path / "model.safetensors"
    save_file({**load_file(file), **changes}, file, metadata={"format": "pt"})


def broken(value):
    """The scales with the first one no number: the last may be what fills a tensor up."""
    wrong = value.clone()
    if value.dtype.itemsize == 1:
        wrong = wrong.view(torch.uint8)
        wrong.view(-1)[0] = 127 if value.dtype == torch.float8_e4m3fn else 255
        return wrong.view(value.dtype)
    wrong.view(-1)[0] = torch.inf
    return wrong


def scales(path):
    """The tensors of a module that hold scales."""
    found = {name: one for name, one in load_file(path / "model.safetensors").items() if name.startswith(MODULE)}
    largest = max(one.numel() for one in found.values())
    return {
        name: one
        for name, one in found.items()
        if not name.endswith(TABLES)
        and (one.is_floating_point() or name.endswith("weight_scale"))
        and (one.numel() < largest or one.dtype.itemsize > 1)
    }


@pytest.fixture(params=some(FORMS))
def model(request, tmp_path):
    return quantized(request.param, tmp_path / "model", 1)


@pytest.mark.covers("QUANT-01", "MODEL-02")
def test_scales_that_are_no_numbers(model):
    found = scales(model)
    assert found
    for name, value in found.items():
        rewritten(model, {name: broken(value)})
        text = refused(model)
        assert text.startswith(("CORE-M160", "CORE-M161")) and f"'{name}'" in text
        rewritten(model, {name: value})


@pytest.mark.covers("QUANT-01", "MODEL-02")
def test_tensors_that_are_cut(model):
    every = load_file(model / "model.safetensors")
    for name, value in every.items():
        if not name.startswith(MODULE) or value.dim() == 0 or value.numel() < 2 or name.endswith(TABLES):
            continue
        axis = max(range(value.dim()), key=lambda one: value.shape[one])
        rewritten(model, {name: value.narrow(axis, 0, value.shape[axis] - 1).contiguous()})
        assert f"'{name}'" in refused(model)
        rewritten(model, {name: value})


@pytest.mark.covers("QUANT-05", "MODEL-02")
def test_bytes_that_hold_more_than_the_bits_of_a_code(tmp_path):
    model, name = quantized("compressed-tensors, int4 in bytes", tmp_path / "model", 1), f"{MODULE}weight"
    wrong = load_file(model / "model.safetensors")[name]
    wrong[-1, -1] = 8
    rewritten(model, {name: wrong})
    text = refused(model)
    assert text.startswith("CORE-M160") and f"'{name}' holds values from -7 to 8, not -8 to 7 of 4 bits" in text


@pytest.mark.covers("MODEL-02")
def test_a_file_that_is_cut(model):
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    assert "model.safetensors" in refused(model)


GROUPS = ("group_size", "weight_block_size", "block_structure")
"""Settings that say how many weights share a scale."""


def other_groups(settings):
    """Settings with groups of half the size, at any depth; whether there were any."""
    changed, found = dict(settings), False
    for key, value in settings.items():
        if key in GROUPS and value not in (None, -1):
            changed[key] = [max(1, one // 2) for one in value] if isinstance(value, list) else value // 2
            found = True
        elif isinstance(value, dict):
            changed[key], inner = other_groups(value)
            found = found or inner
    return changed, found


GROUPED = [name for name, form in FORMS.items() if other_groups(form.settings)[1] and "order" not in name]
"""Where groups are in any order, a tensor tells them, not the settings."""


@pytest.mark.covers("QUANT-01", "MODEL-02")
@pytest.mark.parametrize("name", some(GROUPED))
def test_groups_of_another_size(name, tmp_path):
    """Either the method knows no such groups, or the first tensor that has not so many scales is named."""
    model = quantized(name, tmp_path / "model", 1)
    file = model / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "quantization_config": other_groups(config["quantization_config"])[0]}))
    text = refused(model)
    assert "_proj." in text or "quantization_config" in text
