"""What the format reads, against its definition."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from core_plugin_torchao.config import reasons_against, refine
from core_plugin_torchao.conformance import (
    ACTIVATIONS,
    FLOAT8,
    FLOAT8_DYNAMIC,
    FLOAT8_WHOLE,
    INT4,
    INT8,
    INT8_DYNAMIC,
    INTX,
    INTX_SYMMETRIC,
    MXFP4,
    MXFP8,
    NVFP4,
    NVFP4_DYNAMIC,
    TILES,
    config,
    described,
    encoded,
    member,
    samples,
    tiled,
)
from core_plugin_torchao.runs import nvfp4_read
from core_plugin_torchao.scheme import TorchAO

from core.api import PLAIN, CheckpointError, LayerSite, ProbeResult, QuantContext, QuantRequest, WeightRules
from core.ops.rounding import rounded
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core_testing.layers import PlainTensor, make_layer, sample_layer
from core_testing.samples import compare_sample, redescribed

SAMPLES = {one.name: one for one in samples()}
ROUNDS = (
    {"int8, activations too": "int8:token"}
    | dict.fromkeys(("float8, activations too", "float8, one scale"), "float8:token")
    | {
        "MXFP4": "e2m1:32",
        "MXFP8": "float8:32",
        "NVFP4, activations too": "e2m1:16",
        "NVFP4, fixed activations": "e2m1:16",
    }
)
LINEAR = LayerSite("linear", "model.layers.0.mlp.gate_proj", 128, (("", 8),))


def made(given, **settings):
    return TorchAO(QuantContext(torch.device("cpu"), torch.float32, described(given, **settings)))


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", SAMPLES)
def test_layers_compute_what_the_format_means(name, tmp_path):
    kind = ROUNDS.get(name)
    fixed = torch.tensor(ACTIVATIONS) if name == "NVFP4, fixed activations" else None
    rounds = None if kind is None else partial(rounded, activations=kind, input_scale=fixed)
    compare_sample(TorchAO, replace(SAMPLES[name], layers=SAMPLES[name].layers[:3]), tmp_path, rounds)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (INT4, "int4/1x32:float32+zeros@as_is"),
        (TILES, "int4/1x64:float32+zeros@as_is"),
        (INT8, "int8/1xall:float32@as_is"),
        (INT8_DYNAMIC, "int8/1xall:float32@int8:token"),
        (FLOAT8, "float8_e4m3fn/1xall:float32@as_is"),
        (FLOAT8_DYNAMIC, "float8_e4m3fn/1xall:float32@float8:token"),
        (FLOAT8_WHOLE, "float8_e4m3fn/allxall:float32@float8:token"),
        (INTX, "int4/1x32:float32+zeros@as_is"),
        (INTX_SYMMETRIC, "int3/1x32:float32@as_is"),
        (config("Int8WeightOnlyConfig", group_size=None), "int8/1xall:float32@as_is"),
        (MXFP4, "e2m1/1x32:e8m0@e2m1:32"),
        (MXFP8, "float8_e4m3fn/1x32:e8m0@float8:32"),
        (NVFP4, "e2m1/1x16:e4m3@as_is"),
        (NVFP4_DYNAMIC, "e2m1/1x16:e4m3@e2m1:16"),
    ],
)
def test_the_form_is_that_of_the_configuration(given, key):
    assert made(given).form(LINEAR, "").key == key


def test_blocks_round_activations_in_runs():
    blocks = [{"_type": "PerBlock", "_data": {"block_size": size}} for size in ([1, 128], [128, 128])]
    given = config("Float8DynamicActivationFloat8WeightConfig", granularity=blocks)
    assert made(given).form(LINEAR, "").key == "float8_e4m3fn/128x128:float32@float8:128"


def site(kind, path):
    return LayerSite(kind, path, 128, (("", 8),))


def test_ends_of_the_model_are_plain_unless_the_checkpoint_says_so():
    head, embedding = site("lm_head", "lm_head"), site("embedding", "model.embed_tokens")
    for settings, quantized in (
        ({}, (False, False)),
        ({"modules_to_not_convert": []}, (True, False)),
        ({"modules_to_not_convert": ["lm_head"]}, (False, False)),
        ({"include_input_output_embeddings": True}, (True, True)),
    ):
        form = made(INT8, **settings)
        assert tuple(form.form(one, "") != PLAIN for one in (head, embedding)) == quantized, settings
    for kind, path in (("router", "model.layers.0.mlp.gate"), ("experts", "model.layers.0.mlp.experts")):
        assert made(INT8).form(site(kind, path), "") == PLAIN
    assert made(INT8, modules_to_not_convert=["model.layers.0"]).form(LINEAR, "") == PLAIN


def test_modules_may_be_named_one_by_one():
    names = {
        "_default": INT8,
        "model.layers.0.self_attn.q_proj": INT4,
        "model.layers.0.self_attn.k_proj.weight": FLOAT8,
        r"re:model\.layers\.\d\.mlp\..*": INTX,
        r"re:model\.layers\.0\.mlp\.up_proj": INT4,
        "model.layers.0.self_attn.v_proj": None,
        "model.embed_tokens": INTX,
    }
    form = made(config("FqnToConfig", fqn_to_config=names))
    found = [
        form.form(site("linear", f"model.layers.0.{name}"), "").shown
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj")
    ]
    assert found == [
        "int4/1x32:float32+zeros", "float8_e4m3fn/1xall:float32", "plain", "int8/1xall:float32",
        "int4/1x32:float32+zeros",
    ]  # fmt: skip
    assert form.form(site("embedding", "model.embed_tokens"), "").codes == "int"
    older = made(config("ModuleFqnToConfig", module_fqn_to_config={"lone": INT4}))
    assert older.form(site("linear", "lone"), "") != PLAIN == older.form(LINEAR, "")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (None, "'', not Int4WeightOnlyConfig"),
        (config("NVFP4InferenceConfig"), "NVFP4InferenceConfig"),
        (config("NVFP4DynamicActivationNVFP4WeightConfig", step=member("", "PREPARE")), "step 'PREPARE'"),
        (config("MXDynamicActivationMXWeightConfig", block_size=16), "runs of 16 inputs"),
        (config("MXDynamicActivationMXWeightConfig", weight_dtype=member("", "fp6_e2m3")), "fp6_e2m3"),
        (config("Int4WeightOnlyConfig", group_size=0), "groups of 0 inputs"),
        (config("Int4WeightOnlyConfig", int4_packing_format=member("", "PRESHUFFLED")), "PRESHUFFLED"),
        (config("Int4WeightOnlyConfig", **{**TILES["_data"], "int4_tile_packed_ntile": 16}), "tiles of 16 outputs"),
        (config("Int8WeightOnlyConfig", granularity={"_type": "PerToken"}), "PerToken"),
        (config("Float8WeightOnlyConfig", weight_dtype=member("torch.dtype", "float4")), "float4"),
        (config("IntxWeightOnlyConfig", weight_dtype=member("torch.dtype", "uint4")), "uint4"),
        (config("FqnToConfig", fqn_to_config={"re:(": INT8}), "re:\\(: missing"),
        (config("FqnToConfig", fqn_to_config={"head": config("Other")}), "head: 'Other'"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(given, named):
    with pytest.raises(CheckpointError, match=named):
        made(given)
    request = QuantRequest("torchao", "cpu", "auto", described(given))
    verdict = refine(request, ProbeResult(available=True))
    assert list(verdict.reasons) == reasons_against(described(given)) != []


def test_configurations_by_name_are_refused():
    assert "'int4_weight_only' by name" in reasons_against({"quant_type": "int4_weight_only"})[0]


@pytest.mark.parametrize(
    ("sample", "suffix", "tensor", "named"),
    [
        ("int4", "qdata", torch.zeros(48, 64, dtype=torch.int32), "holds torch.int32, not torch.int8"),
        ("int4", "scale", torch.zeros(4, 48), "_weight_scale' has scales of 0"),
        ("int4 in tiles", "qdata", torch.zeros(6, 8, 16, 8, dtype=torch.int32), r"tiles of \(16, 8\)"),
        ("int8", "zero_point", torch.ones(48, 1, dtype=torch.int8), "weights are symmetric"),
        ("int8", "qdata", torch.zeros(48, 128, dtype=torch.uint8), "holds torch.uint8, not torch.int8"),
        ("float8", "qdata", torch.zeros(48, 128), "holds torch.float32, not torch.float8_e4m3fn"),
        ("3 bits in bytes, symmetric", "zero_point", torch.ones(48, 4, dtype=torch.int8), "weights are symmetric"),
        ("MXFP4", "qdata", torch.zeros(48, 64, dtype=torch.int8), "holds torch.int8, not torch.uint8"),
        ("MXFP8", "scale", torch.ones(48, 4), "holds torch.float32, not torch.float8_e8m0fnu"),
        (
            "NVFP4",
            "scale",
            torch.ones(48, 9).to(torch.float8_e4m3fn),
            r"shape \(48, 9\), not \(48, 8\), nor \(32, 32\)",
        ),
    ],
)
def test_tensors_that_contradict_the_settings_are_refused_by_name(sample, suffix, tensor, named, tmp_path):
    layer = SAMPLES[sample].layers[2]
    broken = redescribed(SAMPLES[sample], {f"{layer.prefix}._weight_{suffix}": tensor})
    with pytest.raises(CheckpointError, match=named) as caught:
        sample_layer(TorchAO, broken, layer, tmp_path)
    assert caught.value.code == "CORE-M160" and "up_proj" in caught.value.message


@pytest.mark.parametrize(("sample", "given"), [("int4", 64), ("int4 in tiles", 128), ("4 bits in bytes", 64)])
def test_other_groups_than_the_checkpoint_says_are_refused(sample, given, tmp_path):
    layer, size = SAMPLES[sample].layers[2], {"int4": INT4, "int4 in tiles": TILES}.get(sample, INTX)
    data = {**size["_data"], "group_size": given}
    if sample == "4 bits in bytes":
        data = {**size["_data"], "granularity": {"_type": "PerGroup", "_data": {"group_size": given}}}
    other = redescribed(SAMPLES[sample], quant_type={"default": {**size, "_data": data}})
    with pytest.raises(CheckpointError, match=r"up_proj\._weight_") as caught:
        sample_layer(TorchAO, other, layer, tmp_path)
    assert caught.value.code == "CORE-M122"


def test_a_layer_that_ranks_divide_has_its_share_of_whole_tiles():
    codes, both = made(TILES).stored(replace(LINEAR, in_features=1024), "")
    assert codes.elements(64, 2048) == (8, 16) and both.elements(64, 2048) == (64, 32)


def test_scales_may_lie_in_the_order_of_the_outputs(tmp_path):
    sample = SAMPLES["MXFP4"]
    site, rows = sample.layers[2], torch.randint(115, 122, (48, 4), dtype=torch.uint8)
    name, found = f"{site.prefix}._weight_scale", []
    for scales in (rows, tiled(rows)):
        given = redescribed(sample, {name: scales.view(torch.float8_e8m0fnu)})
        found.append(sample_layer(TorchAO, given, site, tmp_path).params["weight"])
    assert torch.equal(*found)


def test_tiles_of_scales_are_those_of_torchao():
    """As `to_blocked` of torchao makes them, by its reshapes."""
    scales = torch.arange(0, 200 * 7).remainder(251).to(torch.uint8).view(200, 7)
    filled = torch.nn.functional.pad(scales, (0, 1, 0, 56)).view(2, 128, 2, 4).permute(0, 2, 1, 3)
    blocks = filled.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(-1, 32, 16)
    assert torch.equal(tiled(scales).flatten(), blocks.flatten())


def test_where_weights_have_runs_alone_activations_have_them_too():
    codes, scales = torch.zeros(8, 8, dtype=torch.uint8), torch.ones(8, 1).to(torch.float8_e4m3fn)
    tensors = {"_weight_qdata": PlainTensor("q", codes), "_weight_scale": PlainTensor("s", scales)}
    form = made(NVFP4_DYNAMIC).form(LINEAR, "")
    assert nvfp4_read(form, (8, 16), tensors).input_scale == 1
    whole = tensors | {"_weight_per_tensor_scale": PlainTensor("w", torch.tensor(0.5))}
    part = nvfp4_read(form, (8, 16), whole)
    assert part.input_scale is None and part.tensor_scale == 0.5
    assert nvfp4_read(form.replace(activations="as_is"), (8, 16), tensors).input_scale is None


EXPERTS = LayerSite(
    "experts", "model.layers.0.mlp.experts", 128, (("0.gate_up_proj", 64), ("1.gate_up_proj", 64)), experts=2
)


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize(
    "name", ["model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts", r"re:.*\.experts\.gate_up_proj"]
)
def test_experts_are_quantized_where_their_parameter_is_named(name):
    form = made(config("FqnToConfig", fqn_to_config={"_default": INT4, name: FLOAT8}))
    assert form.form(EXPERTS, "1.gate_up_proj").shown == "float8_e4m3fn/1xall:float32"
    assert form.form(replace(EXPERTS, prefix="model.layers.1.mlp.experts"), "0.down_proj") == PLAIN


def stacked(tensors):
    """The tensors of several experts, by suffix, as those of one parameter."""
    names = tensors[0].keys()
    scalars = [name for name in names if not tensors[0][name].dim()]
    return {
        f"model.layers.0.mlp.experts._gate_up_proj_{name.removeprefix('_weight_')}": tensors[0][name]
        if name in scalars
        else torch.stack([one[name] for one in tensors])
        for name in names
    }


RULES = WeightRules(experts=((".experts.gate_up_proj", ".experts.{}.gate_up_proj.weight"),))


@pytest.mark.covers("QUANT-01", "MOE-04")
@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("given", [INT4, INT8, FLOAT8, FLOAT8_WHOLE, MXFP4, NVFP4], ids=lambda one: one["_type"])
def test_experts_in_one_parameter_are_taken_apart(given, rows):
    each = [encoded(given, (rows, 128), torch.Generator().manual_seed(seed)) for seed in range(2)]
    form = made(config("FqnToConfig", fqn_to_config={r"re:.*\.experts\.gate_up_proj": given}))
    layer = make_layer(form, replace(EXPERTS, parts=tuple((part, rows) for part, _ in EXPERTS.parts)))
    filler = WeightFiller([layer.group], NameMap(RULES, ()), torch.device("cpu"))
    tensors = [PlainTensor(*pair) for pair in stacked([stored for stored, _ in each]).items()]
    if form.form(EXPERTS, "0.gate_up_proj").scale != "float32" and rows % 128:
        with pytest.raises(CheckpointError, match="tiles of 128 outputs, which do not divide an expert's 64"):
            filler.fill(tensors)
        return
    filler.fill(tensors)
    due = torch.cat([meant for _, meant in each])
    torch.testing.assert_close(layer.params["weight"], due, rtol=1e-5, atol=1e-5)


def test_one_number_is_that_of_all_experts():
    each = [encoded(FLOAT8_WHOLE, (64, 128), torch.Generator().manual_seed(seed))[0] for seed in range(2)]
    layer = make_layer(made(config("FqnToConfig", fqn_to_config={EXPERTS.prefix: FLOAT8_WHOLE})), EXPERTS)
    tensors = stacked([{**stored, "_weight_scale": torch.tensor(0.5)} for stored in each])
    tensors[f"{EXPERTS.prefix}._gate_up_proj_scale"] = torch.full((1, 1, 1), 0.5)
    filler = WeightFiller([layer.group], NameMap(RULES, ()), torch.device("cpu"))
    filler.fill(PlainTensor(*pair) for pair in tensors.items())
    assert torch.equal(layer.params["weight"], torch.cat([one["_weight_qdata"].float() for one in each]) * 0.5)
