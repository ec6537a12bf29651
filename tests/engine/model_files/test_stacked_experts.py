"""Experts that are one parameter of all of them, as transformers and torchao have it, though others are not."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).parent))
from test_formats_on_models import MIXTURE, REFERENCE, made, tokens

ROWS = Path(__file__).parents[3] / "plugins" / "models" / "qwen_next" / "tests" / "rows.py"
GROUP = 8
NAMES = r"re:.*\.experts\.(gate_up_proj|down_proj)"


def float8(weight):
    """A scale for each output of each expert."""
    scale = weight.abs().amax(-1, keepdim=True) / 448
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return {"qdata": codes, "scale": scale}, codes.float() * scale


def int8(weight):
    scale = weight.abs().amax(-1, keepdim=True) / 127
    codes = (weight / scale).round()
    return {"qdata": codes.to(torch.int8), "scale": scale, "zero_point": torch.zeros_like(scale)}, codes * scale


def int4(weight):
    """A scale, and the value of code 0, for each group of inputs: groups before outputs."""
    groups = weight.unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1, keepdim=True) / 7
    codes = (groups / scale).round()
    nibbles = codes.flatten(-2).int() & 15
    packed = (nibbles[..., ::2] | nibbles[..., 1::2] << 4).to(torch.uint8).view(torch.int8)
    shared = scale.squeeze(-1).transpose(1, 2).contiguous()
    return {"qdata": packed, "scale": shared, "zero_point": torch.zeros_like(shared)}, (codes * scale).flatten(-2)


STORES = {
    "Float8WeightOnlyConfig": (float8, {}),
    "Int8WeightOnlyConfig": (int8, {}),
    "Int4WeightOnlyConfig": (int4, {"group_size": GROUP}),
}


def multimodal():
    """The family whose checkpoints are always so."""
    spec = spec_from_file_location("rows_with_stacked_experts", ROWS)
    rows = module_from_spec(spec)
    spec.loader.exec_module(rows)
    return next(row for row in rows.ROWS if row.name == "qwen3_5_moe_multimodal")


@pytest.fixture(scope="module", params=["always", "elsewhere apart"])
def plain(request, tmp_path_factory):
    family = MIXTURE if request.param == "elsewhere apart" else multimodal()
    return family.write(tmp_path_factory.mktemp("plain") / "model")


def parameters(tensors):
    """Tensors with those of single experts put into one: gate and up of each, one after the other, and down."""
    found = {name: one for name, one in tensors.items() if ".experts." not in name or name.endswith("_proj")}
    for module in {name.partition(".experts.")[0] + ".experts" for name in tensors.keys() - found.keys()}:
        count = len({name for name in tensors if name.startswith(f"{module}.") and name.endswith("down_proj.weight")})
        each = [
            {part: tensors[f"{module}.{expert}.{part}_proj.weight"] for part in ("gate", "up", "down")}
            for expert in range(count)
        ]
        found[f"{module}.gate_up_proj"] = torch.stack([torch.cat((one["gate"], one["up"])) for one in each])
        found[f"{module}.down_proj"] = torch.stack([one["down"] for one in each])
    return found


@pytest.mark.covers("QUANT-01", "MOE-04")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * name.startswith("Int")) for name in STORES]
)
def test_experts_in_one_parameter_have_the_tokens_of_their_opened_twin(plain, tmp_path, name):
    (store, data), stored, meant = STORES[name], {}, {}
    for key, value in parameters(load_file(plain / "model.safetensors")).items():
        stored[key] = meant[key] = value
        module, _, parameter = key.rpartition(".")
        if module.endswith(".experts"):
            del stored[key]
            tensors, opened = store(value.float())
            meant[key] = opened.contiguous()
            stored |= {f"{module}._{parameter}_{suffix}": one.contiguous() for suffix, one in tensors.items()}
    assert len(stored) > len(meant)
    named = {"fqn_to_config": {NAMES: {"_type": name, "_data": data}}}
    settings = {"quant_method": "torchao", "quant_type": {"default": {"_type": "FqnToConfig", "_data": named}}}
    twin = tokens(made(plain, tmp_path / "twin", meant), kernel=REFERENCE)
    assert tokens(made(plain, tmp_path / "model", stored, settings), kernel=REFERENCE) == twin
    assert len(set(twin)) > 2


@pytest.mark.covers("MOE-04")
def test_plain_experts_may_be_one_parameter_too(tmp_path):
    plain = MIXTURE.write(tmp_path / "plain")
    joined = made(plain, tmp_path / "joined", parameters(load_file(plain / "model.safetensors")))
    assert tokens(joined, kernel=REFERENCE) == tokens(
        made(plain, tmp_path / "apart", load_file(plain / "model.safetensors")), kernel=REFERENCE
    )
