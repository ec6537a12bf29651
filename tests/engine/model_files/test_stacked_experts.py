"""Experts that are one parameter of all of them, as transformers and torchao have it, though others are not."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers.core_model_loading import revert_weight_conversion

from core.api import CheckpointError

sys.path.insert(0, str(Path(__file__).parent))
from test_formats_on_models import MIXTURE, REFERENCE, made, tokens

FAMILIES = Path(__file__).parents[3] / "plugins" / "models"
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


def row(distribution, name):
    """A tiny checkpoint of the families' tests."""
    spec = spec_from_file_location(f"rows_of_{distribution}", FAMILIES / distribution / "tests" / "rows.py")
    rows = module_from_spec(spec)
    spec.loader.exec_module(rows)
    return next(one for one in rows.ROWS if one.name == name)


@pytest.fixture(scope="module", params=["always", "elsewhere apart"])
def plain(request, tmp_path_factory):
    family = MIXTURE if request.param == "elsewhere apart" else row("qwen_next", "qwen3_5_moe_multimodal")
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


OTHERWISE = {
    "mixtral": "mixtral",
    "phimoe": "phi",
    "minimax_m2": "minimax",
    "lfm2_moe": "lfm2",
    "kimi_linear": "kimi_linear",
    "nemotron_h": "nemotron",
    "granite_moe": "granite",
    "granite_moe_shared": "granite",
    "granite_hybrid": "granite",
    "llama4": "llama4",
    "gpt_oss": "gpt_oss",
}
"""Families whose files call what an expert reads with otherwise (w1 and w3, input_linear), have no gate, or have the
inputs first: name of a row -> distribution."""

TURNED = ("llama4", "gpt_oss")
"""Of these, those whose parameters are `(experts, inputs, outputs)`."""


def flattened(name, tensors):
    """The tensors in the place of a parameter, as torchao's are called in a file."""
    module, _, parameter = name.rpartition(".")
    return {f"{module}._{parameter}_{suffix}": one for suffix, one in tensors.items()}


@pytest.mark.covers("QUANT-01", "MOE-04")
@pytest.mark.parametrize("exact", [True, False], ids=["names", "expressions"])
@pytest.mark.parametrize("name", OTHERWISE)
def test_experts_of_any_names_are_read_as_transformers_saves_them(name, exact, tmp_path):
    """Files have the names that transformers' own conversion gives the tensors of quantized parameters."""
    twin, given = by_outputs(name, tmp_path, 1 if name in TURNED else -1, exact=exact)
    found = tokens(given, kernel=REFERENCE, max_model_len=64)
    assert found == tokens(twin, kernel=REFERENCE, max_model_len=64)
    assert len(set(found)) > 2


@pytest.mark.covers("QUANT-01", "MOE-04")
@pytest.mark.parametrize(("name", "dim"), [("mixtral", 1), ("llama4", -1)])
def test_experts_with_scales_for_inputs_are_refused_by_name(name, dim, tmp_path):
    _, given = by_outputs(name, tmp_path, dim, exact=True)
    with pytest.raises(CheckpointError, match=r"experts\.0\.\w+_proj\._weight_scale") as caught:
        tokens(given, kernel=REFERENCE, max_model_len=64)
    assert caught.value.code == "CORE-M122"


def by_outputs(name, folder, dim, *, exact):
    """A model whose experts have a scale wherever `dim` of a parameter is summed over, and its opened twin.

    Args:
        exact: The configuration names each parameter; otherwise an expression does.
    """
    model, stored, named = (family := row(OTHERWISE[name], name)).model(), {}, {}
    parameters = dict(model.named_parameters())
    experts = [key for key, one in parameters.items() if ".experts." in key and one.dim() == 3]
    granularity = {"granularity": {"_type": "PerRow", "_data": {"dim": dim}}}
    config = {"_type": "Int8WeightOnlyConfig", "_data": granularity}
    for key in experts:
        weight = parameters[key].detach()
        scale = weight.abs().amax(dim, keepdim=True) / 127
        codes = (weight / scale).round()
        stored |= flattened(key, {"qdata": codes.to(torch.int8), "scale": scale})
        named[key] = config
        parameters[key].data.copy_(codes * scale)
    assert experts
    twin = family.write(folder / "twin", model)
    plain = revert_weight_conversion(model, {key: parameters[key].detach() for key in experts})
    kept = {key: one for key, one in load_file(twin / "model.safetensors").items() if key not in plain}
    named = named if exact else {r"re:.*\.experts\.(gate_up|up|down)_proj": config}
    settings = {"_type": "FqnToConfig", "_data": {"fqn_to_config": named}}
    settings = {"quant_method": "torchao", "quant_type": {"default": settings}}
    return twin, made(twin, folder / "model", {**kept, **revert_weight_conversion(model, stored)}, settings)
