"""Tensors of parts: sizes that do not fit are refused before they are read, and little is held while they are."""

from __future__ import annotations

import importlib
import json
from contextlib import nullcontext
from pkgutil import resolve_name

import pytest
import torch
from safetensors.torch import load_file

from core.api import CheckpointError, LayerSite, Part, QuantContext, Stored, WeightForm
from core_testing.conformance.tools.memory import HeldMemory
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.layers import fill, make_layer

SITE = LayerSite("linear", "x", 96, (("a", 48), ("b", 32)))
CODES = WeightForm(codes="int", bits=3, inputs=32)


class Threes:
    """3-bit codes, inputs first: 32 of them in 3 words; a scale for 32 inputs, a tensor for all, an optional one."""

    def __init__(self):
        self.read_parts = []

    def form(self, site, part):
        return CODES

    def stored(self, site, part):
        return [
            Stored("codes", (1, 0), per=(1, 32), unit=(1, 3)),
            Stored("scales", per=(1, 32)),
            Stored("whole", (None, None)),
            Stored("order", (None, 0), optional=True),
        ]

    def read(self, site, part, tensors):
        self.read_parts.append((part, sorted(tensors)))
        rows = dict(site.parts)[part]
        codes = torch.ones(rows, site.in_features, dtype=torch.int8)
        return Part(CODES, codes, tensors["scales"].dense(torch.float32))


def tensors(**changes):
    """What fits, but for changed shapes; None: it is not there."""
    shapes = {}
    for part, rows in SITE.parts:
        shapes |= {f"{part}.codes": (9, rows), f"{part}.scales": (rows, 3), f"{part}.whole": (1,)}
    shapes |= {name.replace("_", "."): shape for name, shape in changes.items()}
    return [PlainTensor(f"x.{name}", torch.ones(shape)) for name, shape in shapes.items() if shape is not None]


@pytest.mark.parametrize("whole", [(), (1,), (1, 1)])
def test_what_fits_is_read_and_what_is_optional_may_be_missing(whole):
    form = Threes()
    fill(make_layer(form, SITE).group, tensors(a_whole=whole, b_order=(96,)))
    assert sorted(form.read_parts) == [
        ("a", ["codes", "scales", "whole"]),
        ("b", ["codes", "order", "scales", "whole"]),
    ]


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("a_codes", (12, 48), "(9, 48)"),
        ("b_codes", (9, 48), "(9, 32)"),
        ("a_codes", (9, 48, 1), "(9, 48)"),
        ("a_codes", (432,), "(9, 48)"),
        ("a_scales", (48, 4), "(48, 3)"),
        ("a_scales", (48,), "(48, 3)"),
        ("b_whole", (32,), "(1,)"),
        ("b_order", (95,), "(96,)"),
    ],
)
def test_a_packed_tensor_of_another_size_is_refused_before_it_is_read(name, shape, wanted):
    form = Threes()
    given = tensors(**{name: shape})
    with pytest.raises(CheckpointError) as caught:
        fill(make_layer(form, SITE).group, given)
    assert caught.value.code == "CORE-M122" and wanted in caught.value.message and str(shape) in caught.value.message
    wrong = next(one for one in given if one.name == f"x.{name.replace('_', '.')}")
    assert wrong.reads == 0


def test_the_tensors_that_a_part_lacks_are_told():
    with pytest.raises(CheckpointError, match=r"lacks 1 tensor of the model: x\.b\.scales") as caught:
        fill(make_layer(Threes(), SITE).group, tensors(b_scales=None))
    assert caught.value.code == "CORE-M121"


class Blocks:
    """Ten bytes for eight inputs, as a file format has them."""

    encoding = "blocks:T"

    def form(self, site, part):
        return WeightForm(codes="blocks:T")

    def stored(self, site, part):
        return [Stored("weight", per=(1, 8), unit=(1, 10), encoding=self.encoding)]

    def read(self, site, part, tensors):
        return Part(WeightForm(), tensors["weight"].dense(torch.float32))


@pytest.mark.parametrize("encoding", ["plain", "blocks:T"])
@pytest.mark.parametrize(("shape", "fits"), [((48, 96), True), ((48, 120), False)])
def test_a_tensor_of_a_file_format_has_the_sizes_of_its_values(encoding, shape, fits):
    """So have plain numbers that an update brings for it."""
    tensor = PlainTensor("y.weight", torch.ones(shape))
    tensor.encoding = encoding
    layer = make_layer(Blocks(), LayerSite("linear", "y", 96, (("", 48),)))
    with nullcontext() if fits else pytest.raises(CheckpointError, match="CORE-M122"):
        fill(layer.group, [tensor])


class Tiles(Blocks):
    """Tiles of 8 outputs and 16 inputs, however they lie, and pairs of numbers for 16 inputs each."""

    def stored(self, site, part):
        tiles = Stored("tiles", per=(8, 16), count=0)
        return [tiles, Stored("pairs", (1, 0), per=(1, 16), count=2)]

    def read(self, site, part, tensors):
        return Part(WeightForm(), torch.ones(48, 96))


@pytest.mark.parametrize(
    ("tiles", "pairs", "fits"),
    [
        ((6, 6, 32, 4), (6, 48, 2), True),
        ((6, 6), (6, 48, 2), True),
        ((6, 5, 32, 4), (6, 48, 2), False),
        ((6, 6, 32, 4), (6, 48, 3), False),
        ((6, 6, 32, 4), (6, 48), False),
        ((6, 6, 32, 4), (6, 48, 2, 2), False),
    ],
)
def test_dimensions_behind_those_of_outputs_and_inputs_are_counted_or_free(tiles, pairs, fits):
    given = [PlainTensor("y.tiles", torch.ones(tiles)), PlainTensor("y.pairs", torch.ones(pairs))]
    layer = make_layer(Tiles(), LayerSite("linear", "y", 96, (("", 48),)))
    with nullcontext() if fits else pytest.raises(CheckpointError, match="CORE-M122"):
        fill(layer.group, given)


METHODS = {
    "awq": "AWQFormat",
    "bitsandbytes": "BitsAndBytes",
    "compressed_tensors": "CompressedFormat",
    "fp8": "FP8",
    "gptq": "GPTQFormat",
    "hqq": "HQQFormat",
    "modelopt": "ModelOpt",
    "mx": "MX",
    "torchao": "TorchAO",
}
ROUNDED = {
    "int8": "core_plugin_unquantized.int8:Int8",
    "int4": "core_plugin_unquantized.int4:Int4",
    "fp8 of plain": "core_plugin_fp8.scheme:FP8",
    "none": "core_plugin_unquantized.plain:Plain",
}
"""Formats that read plain weights."""


class Mapped(PlainTensor):
    """A tensor that a file shows: `raw` is no memory of its own."""

    def raw(self):
        return self._values


@pytest.mark.covers("QUANT-07")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", [*METHODS, *ROUNDED])
def test_no_more_is_held_while_a_layer_is_loaded_than_its_final_size_and_one_part(method, dtype, tmp_path):
    site = LayerSite("linear", "model.layers.0.mlp.down_proj", 1024, (("", 1024),))
    config = {}
    if method in METHODS:
        package = f"core_plugin_{method}"
        samples = importlib.import_module(f"{package}.conformance").samples()
        sample = next(one for one in samples if one.name == "large")
        kind = getattr(importlib.import_module(f"{package}.scheme"), METHODS[method])
        path = sample.write(tmp_path)
        config = json.loads((path / "config.json").read_text())["quantization_config"]
        stored = load_file(path / "model.safetensors")
    else:
        kind = resolve_name(ROUNDED[method])
        stored = {f"{site.prefix}.weight": torch.randn(1024, 1024).to(dtype)}
    layer = make_layer(kind(QuantContext(torch.device("cpu"), dtype, config)), site, dtype=dtype)
    given = [Mapped(*pair) for pair in stored.items()]
    fill(layer.group, given)
    with HeldMemory() as held:
        fill(layer.group, given)
    values = 2**20 * dtype.itemsize
    assert layer.group.final_bytes <= held.peak <= layer.group.final_bytes + 1.1 * values
