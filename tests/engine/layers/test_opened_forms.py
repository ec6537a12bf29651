"""What each form of a weight stands for, and each rounding of activations, against definitions written out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from core.api.forms import Part, WeightForm
from core.api.products import ProductPlace
from core.api.quantization import LayerSite
from core.ops.products import NF4, ReferenceProduct, opened
from core.ops.rounding import ROUNDINGS, rounded

E4M3, E2M1 = "float8_e4m3fn", "e2m1"
RNG = torch.Generator().manual_seed(3)


def integers(low, high, *shape, dtype=torch.uint8):
    return torch.randint(low, high, shape, generator=RNG).to(dtype)


def scales(*shape):
    return torch.rand(shape, generator=RNG) + 0.5


def part(codes, form, **more):
    return Part(WeightForm(**form), codes, **more)


def float8(bits, exponent_bits, bias, finite_only):
    """The value of eight bits: sign, exponent, mantissa."""
    mantissa_bits = 7 - exponent_bits
    sign, exponent, mantissa = bits >> 7, bits >> mantissa_bits & 2**exponent_bits - 1, bits & 2**mantissa_bits - 1
    if exponent == 2**exponent_bits - 1 and (not finite_only or mantissa == 2**mantissa_bits - 1):
        return math.nan if mantissa or finite_only else (-1) ** sign * math.inf
    fraction = mantissa / 2**mantissa_bits
    size = fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias)
    return -size if sign else size


def e4m3(bits):
    return float8(bits, 4, 7, True)


def e2m1(code):
    exponent, mantissa = code >> 1 & 3, code & 1
    size = mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return -size if code & 8 else size


VALUES = {
    "int": float,
    "float8_e4m3fn": e4m3,
    "float8_e5m2": lambda bits: float8(bits, 5, 15, False),
    "e2m1": e2m1,
    "nf4": lambda code: NF4[code],
}
SCALES = {"float32": float, "e8m0": lambda byte: 2.0 ** (byte - 127), "e4m3": e4m3}


def meant(given):
    """The values of a part, one element after the other."""
    form, (rows, columns) = given.form, given.codes.shape
    out = torch.empty(rows, columns)
    for i, j in itertools.product(range(rows), range(columns)):
        at = i // form.outputs if form.outputs else 0, j // form.inputs if form.inputs else 0
        if given.group_of is not None:
            at = at[0], int(given.group_of[j])
        value = VALUES[form.codes](given.codes[i, j].item())
        value -= 0 if given.zeros is None else given.zeros[at].item()
        value *= 1 if given.scales is None else SCALES[form.scale](given.scales[at].item())
        out[i, j] = value * (1 if given.tensor_scale is None else given.tensor_scale.item())
    return out


MX = {"codes": E2M1, "inputs": 32, "scale": "e8m0"}
FORMS = {
    "int4 in groups, zeros": part(
        integers(0, 16, 6, 96), {"codes": "int", "bits": 4, "inputs": 32, "zeros": True},
        scales=scales(6, 3), zeros=integers(0, 17, 6, 3, dtype=torch.int16),
    ),
    "int4 in groups, zeros with fractions": part(
        integers(0, 16, 6, 96), {"codes": "int", "bits": 4, "inputs": 32, "zeros": True},
        scales=scales(6, 3), zeros=integers(0, 65, 6, 3, dtype=torch.int16) / 4,
    ),
    "int4 in groups, signed": part(
        integers(-8, 8, 6, 96, dtype=torch.int8), {"codes": "int", "bits": 4, "inputs": 32}, scales=scales(6, 3)
    ),
    "int8 in order of its own": part(
        integers(0, 256, 5, 64), {"codes": "int", "bits": 8, "inputs": 16, "zeros": True, "ordered": True},
        scales=scales(5, 4), zeros=integers(0, 256, 5, 4, dtype=torch.int16), group_of=integers(0, 4, 64).long(),
    ),
    "int8 by channel": part(
        integers(-127, 128, 5, 20, dtype=torch.int8), {"codes": "int", "bits": 8}, scales=scales(5, 1)
    ),
    "int8, one scale": part(
        integers(-127, 128, 5, 20, dtype=torch.int8), {"codes": "int", "bits": 8, "outputs": 0}, scales=scales(1, 1)
    ),
    "the last group is short": part(
        integers(-8, 8, 3, 40, dtype=torch.int8), {"codes": "int", "bits": 4, "inputs": 16}, scales=scales(3, 3)
    ),
    "float8 in blocks": part(
        integers(0, 120, 130, 200), {"codes": E4M3, "outputs": 128, "inputs": 128}, scales=scales(2, 2)
    ),
    "float8 by channel": part(integers(0, 126, 4, 9), {"codes": E4M3}, scales=scales(4, 1)),
    "float8, one scale": part(integers(128, 254, 4, 9), {"codes": E4M3, "outputs": 0}, scales=scales(1, 1)),
    "every e4m3": part(torch.arange(256).view(4, 64).to(torch.uint8), {"codes": E4M3}),
    "every e5m2": part(torch.arange(256).view(4, 64).to(torch.uint8), {"codes": "float8_e5m2"}),
    "MXFP4": part(integers(0, 16, 4, 64), MX, scales=integers(97, 140, 4, 2)),
    "MXFP8": part(integers(0, 120, 4, 64), {**MX, "codes": E4M3}, scales=integers(97, 140, 4, 2)),
    "smallest e8m0": part(integers(0, 16, 1, 32), MX, scales=integers(0, 1, 1, 1)),
    "NVFP4": part(
        integers(0, 16, 4, 64), {"codes": E2M1, "inputs": 16, "scale": "e4m3"},
        scales=integers(1, 126, 4, 4), tensor_scale=torch.tensor(0.037),
    ),
    "nf4": part(integers(0, 16, 4, 128), {"codes": "nf4", "inputs": 64}, scales=scales(4, 2)),
}  # fmt: skip


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_opened_to_what_it_means(name, monkeypatch):
    given = FORMS[name]
    expected = meant(given)
    torch.testing.assert_close(opened(given, torch.float32), expected, rtol=2e-7, atol=0, equal_nan=True)
    monkeypatch.setattr("core.ops.products.CHUNK", 3 * given.codes.shape[1])  # rows come three at a time
    torch.testing.assert_close(opened(given, torch.float32), expected, rtol=2e-7, atol=0, equal_nan=True)
    narrow = opened(given, torch.bfloat16)
    torch.testing.assert_close(narrow, expected.to(torch.bfloat16), rtol=1e-2, atol=0, equal_nan=True)


def test_bytes_and_their_dtype_are_the_same():
    given = FORMS["NVFP4"]
    typed = part(
        given.codes, {"codes": E2M1, "inputs": 16, "scale": "e4m3"},
        scales=given.scales.view(torch.float8_e4m3fn), tensor_scale=given.tensor_scale,
    )  # fmt: skip
    assert torch.equal(opened(typed, torch.float32), opened(given, torch.float32))


@pytest.mark.parametrize(
    ("form", "said"), [({"codes": "ternary"}, "codes 'ternary'"), ({"codes": "int", "scale": "e3m2"}, "scales 'e3m2'")]
)
def test_what_core_cannot_open_is_said(form, said):
    with pytest.raises(ValueError, match=said):
        opened(part(integers(0, 2, 2, 2), form, scales=scales(2, 1)), torch.float32)


ALL_E4M3 = [e4m3(bits) for bits in range(256) if not math.isnan(e4m3(bits))]
ALL_E2M1 = [e2m1(code) for code in range(16)]


def nearest(value, values):
    """The nearest of these; of two the one whose last bit is 0, which is every second."""
    ordered = sorted({abs(one) for one in values})
    size = min(abs(value), ordered[-1])
    best = min(abs(size - one) for one in ordered)
    index = next(i for i in sorted(range(len(ordered)), key=lambda i: (i % 2, i)) if abs(size - ordered[i]) == best)
    return math.copysign(ordered[index], value)


def single(value):
    return torch.tensor(value, dtype=torch.float32).item()


def run_by_definition(values, steps, most, scale=None):
    scale = single(max(map(abs, values)) / most) or 1.0 if scale is None else scale
    return [single(nearest(single(value / scale), steps) * scale) for value in values]


def joined(runs):
    return [value for run in runs for value in run]


def by_definition(x, kind, fixed=None):
    rows = x.tolist()
    if kind == "int8:token":
        return torch.tensor([run_by_definition(row, range(-127, 128), 127) for row in rows])
    if kind == "float8:token":
        return torch.tensor([run_by_definition(row, ALL_E4M3, 448) for row in rows])
    if kind == "float8:128":
        runs = [[row[i : i + 128] for i in range(0, len(row), 128)] for row in rows]
        return torch.tensor([joined(run_by_definition(run, ALL_E4M3, 448) for run in row) for row in runs])
    if kind in ("float8:32", "e2m1:32"):
        steps, top = (ALL_E4M3, 8) if kind == "float8:32" else (ALL_E2M1, 2)
        runs = [[row[i : i + 32] for i in range(0, len(row), 32)] for row in rows]
        powers = [[2.0 ** (math.floor(math.log2(max(map(abs, run)) or 1)) - top) for run in row] for row in runs]
        each = [zip(row, scales, strict=True) for row, scales in zip(runs, powers, strict=True)]
        return torch.tensor([joined(run_by_definition(run, steps, 0, scale) for run, scale in row) for row in each])
    largest = max(abs(value) for row in rows for value in row)
    if kind == "float8:tensor":
        return torch.tensor([run_by_definition(row, ALL_E4M3, 448, fixed or single(largest / 448)) for row in rows])
    whole, out = fixed or single(largest / 2688), []
    for row in rows:
        runs = [row[i : i + 16] for i in range(0, len(row), 16)]
        each = [single(nearest(single(max(map(abs, run)) / 6 / whole), ALL_E4M3) * whole) for run in runs]
        out.append(joined(run_by_definition(run, ALL_E2M1, 6, s or whole) for run, s in zip(runs, each)))
    return torch.tensor(out)


@pytest.mark.covers("QUANT-01")
@pytest.mark.parametrize("fixed", [None, 0.011])
@pytest.mark.parametrize("kind", sorted(ROUNDINGS))
def test_activations_are_rounded_as_their_name_says(kind, fixed):
    x = torch.randn(5, 200, generator=RNG) * 3
    x[3] = 0
    scale = None if fixed is None else torch.tensor(fixed)
    expected = by_definition(x, kind, single(fixed) if fixed and kind in ("float8:tensor", "e2m1:16") else None)
    found = rounded(x, kind, scale)
    # A value at the middle of two steps may fall to either, as scales are computed in one order or another.
    close = torch.isclose(found, expected, rtol=1e-6, atol=0)
    assert close.float().mean() > 0.995
    assert rounded(x[:0], kind).shape == (0, 200)
    assert rounded(x.bfloat16(), kind).dtype == torch.bfloat16


@pytest.mark.parametrize("value", [*ALL_E2M1, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 7.0, -0.25, -2.5, 0.3])
def test_every_step_of_e2m1(value):
    from core.ops.rounding import to_e2m1

    assert to_e2m1(torch.tensor([value])).item() == nearest(value, ALL_E2M1)


def test_as_they_are_and_unknown_activations():
    x = torch.randn(2, 4)
    assert rounded(x, "as_is") is x
    with pytest.raises(ValueError, match="activations 'int3:token'; it knows e2m1:16"):
        rounded(x, "int3:token")


def product(*activations, parts=(("a", 3), ("b", 5)), bias=False):
    site = LayerSite("linear", "x", 32, parts, bias)
    forms = tuple(WeightForm(codes=E4M3, activations=kind) for kind in activations)
    return ReferenceProduct(ProductPlace(site, forms, torch.device("cpu"), torch.float32), {})


@pytest.mark.parametrize("fixed", [(0.01, 0.02), (None, 0.02), (None, None)])
def test_a_part_has_the_scale_of_activations_that_its_checkpoint_fixes(fixed):
    made = product("float8:tensor", "as_is", bias=True)
    out = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in made.sizes().items()}
    x, weight, bias = torch.randn(4, 32), torch.randn(8, 32), torch.randn(8)
    scales = [None if one is None else torch.tensor(one) for one in fixed]
    for index, rows in ((1, slice(3, 8)), (0, slice(0, 3))):
        one = Part(WeightForm(), weight[rows], input_scale=scales[index], bias=bias[rows])
        made.pack(one, index, out)
    expected = torch.cat([rounded(x, "float8:tensor", scales[0]) @ weight[:3].T, x @ weight[3:].T], 1) + bias
    torch.testing.assert_close(made.apply(x, out), expected)
