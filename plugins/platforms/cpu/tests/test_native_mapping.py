"""Operations element by element, copies and reductions, beside torch, at every instruction set of this machine."""

import pytest
import torch
from core_plugin_cpu.native.mapping import compute, copy, reduce
from core_plugin_cpu.native.rewrite import rewritten

DTYPES = (torch.float32, torch.bfloat16)
SPECIAL = (0.0, -0.0, 1e-30, -1e-30, 0.2999, 0.3001, 88.0, -88.0, 3e38, -3e38, *map(float, ("inf", "-inf", "nan")))
EXACT = {
    "negate": torch.neg,
    "absolute": torch.abs,
    "relu": torch.relu,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
}
CLOSE = {
    "root": torch.sqrt,
    "reciprocal_root": torch.rsqrt,
    "exponential": torch.exp,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}
OF_TWO = {
    "add": torch.add,
    "subtract": torch.sub,
    "subtract_from": lambda x, y: torch.sub(y, x),
    "multiply": torch.mul,
    "divide": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


def numbers(dtype, *shape):
    """Numbers of all magnitudes, and what has none."""
    values = torch.randn(*shape) * torch.logspace(-6, 6, shape[-1])
    values.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL)[: values.numel()]
    return values.to(dtype)


def mapped(operation, like, *operands):
    out = torch.full_like(like, 7.0)
    assert compute(operation, out, *operands)
    return out


def same(got, wanted):
    torch.testing.assert_close(got, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", EXACT)
def test_exact_operations_of_one_tensor(isa, operation, dtype):
    for size in (1, 7, 16, 255, 256, 257, 1000):
        x = numbers(dtype, 5, size)
        same(mapped(operation, x, x), EXACT[operation](x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", CLOSE)
def test_functions_are_within_one_rounding(isa, operation, dtype):
    x = torch.cat([torch.linspace(-40, 40, 80001), torch.linspace(-1e-3, 1e-3, 999), numbers(torch.float32, 64)])
    x = x.to(dtype).unsqueeze(0)
    exact = CLOSE[operation](x.double())
    tolerance = {"rtol": 2**-8, "atol": 1e-6} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 3e-7}
    if operation.startswith("gelu"):
        x, exact = x[:, :-64], exact[:, :-64]  # of infinities torch has NaN too, in places
        tolerance["rtol"] = max(tolerance["rtol"], 2e-5)
    got = mapped(operation, x, x).double()
    finite = exact.abs() < 3e38  # beyond, float32 has no number
    torch.testing.assert_close(got[finite], exact[finite], **tolerance)
    if not operation.startswith("gelu"):
        assert torch.equal(got.isnan(), exact.isnan())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OF_TWO)
def test_operations_of_two_repeat_rows_and_columns(isa, operation, dtype):
    x = numbers(dtype, 6, 300)
    for shape in ((6, 300), (1, 300), (6, 1), (300,), (1, 1)):
        y = torch.randn(shape).to(dtype)
        same(mapped(operation, x, x, y), OF_TWO[operation](x, y))
    heads = torch.randn(6, 4, 32).to(dtype)
    for shape in ((4, 32), (6, 4, 1), (6, 1, 32), (32,), (4, 1)):
        y = torch.randn(shape).to(dtype)
        same(mapped(operation, heads, heads, y), OF_TWO[operation](heads, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("func", ["add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "rsub.Scalar"])
def test_numbers_are_rounded_as_torch_does(isa, func, dtype):
    name, overload = func.split(".")
    func, x = getattr(getattr(torch.ops.aten, name), overload), numbers(dtype, 6, 300)
    for number in (3, -2.5, 0.1, 1 / 3, 23.999, 1e-3):
        same(rewritten(func, (x, number), {}, lambda: torch.empty_like(x), rows=True), func(x, number))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("beta", [1.0, 0.6931471805599453, 3.0, -0.5])
def test_softplus_is_within_one_rounding(isa, beta, dtype):
    x = torch.cat([torch.linspace(-60, 60, 40001), torch.linspace(-1e-3, 1e-3, 999)]).to(dtype).unsqueeze(0)
    exact = torch.nn.functional.softplus(x.double(), beta=beta, threshold=1e9)
    tolerance = {"rtol": 2**-8, "atol": 1e-6} if dtype == torch.bfloat16 else {"rtol": 2e-6, "atol": 3e-7}
    torch.testing.assert_close(mapped("softplus", x, x, beta).double(), exact, **tolerance)
    special = torch.tensor([[float("inf"), float("-inf"), float("nan"), 3e38, -3e38]]).to(dtype)
    same(mapped("softplus", special, special, 1.0), torch.nn.functional.softplus(special))


REDUCED = {"sum": torch.sum, "mean": torch.mean, "greatest": torch.amax, "least": torch.amin}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", REDUCED)
def test_rows_become_one_number_each(isa, operation, dtype):
    for size in (1, 7, 16, 17, 255, 256, 257, 5000):
        x = torch.randn(6, 4, size).to(dtype)
        for source in (x, x[:, 1], x[:, :, ::3], x.transpose(0, 1), x.flatten(1)):
            out = torch.full(source.shape[:-1], 7.0, dtype=dtype)
            assert reduce(operation, out, source)
            wanted = REDUCED[operation](source.double(), dim=-1)
            rtol = {torch.float32: 2e-6, torch.bfloat16: 2**-8}[dtype]
            torch.testing.assert_close(out.double(), wanted, rtol=rtol, atol=2e-4 if operation == "sum" else 1e-6)


@pytest.mark.parametrize("operation", REDUCED)
def test_what_is_no_number_passes_on(isa, operation):
    x = torch.randn(3, 300)
    x[0, 299], x[1, 3], x[2, 17] = float("nan"), float("inf"), float("-inf")
    out = torch.zeros(3)
    assert reduce(operation, out, x)
    torch.testing.assert_close(out, REDUCED[operation](x, dim=-1), equal_nan=True)
    rounded = torch.zeros(3, dtype=torch.bfloat16)
    assert reduce(operation, rounded, x[:, 5:9]) and not reduce(operation, torch.zeros(3), x.double())


def test_dtypes_meet_in_the_wider_one(isa):
    x, y = torch.randn(5, 70).bfloat16(), torch.randn(5, 70)
    same(mapped("multiply", y, x, y), x * y)
    same(mapped("same", y, x), x.float())
    same(mapped("same", x, y), y.bfloat16())


def test_work_shared_by_threads_is_complete(isa):
    x, y = torch.randn(301, 777), torch.randn(777)
    same(mapped("add", x, x, y), x + y)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.int64])
def test_copies_of_what_lies_apart(isa, dtype):
    x = torch.arange(7 * 6 * 40).view(7, 6, 40).to(dtype)
    for source in (x[:, 1:4], x[:, :, 3:9], x.transpose(1, 2), x[:, 0], x[:, :, :1].expand(7, 6, 9), x[:, 2, ::5]):
        out = torch.zeros(source.shape, dtype=dtype)
        assert copy(out, source) and torch.equal(out, source)
    wide = torch.zeros(7, 100, dtype=dtype)
    assert copy(wide[:, 10:50], x[:, 2]) and torch.equal(wide[:, 10:50], x[:, 2]) and not wide[:, 50:].any()


def test_what_is_too_irregular_is_left_to_torch():
    x = torch.randn(4, 3, 2, 5, 6).transpose(2, 4)
    assert not copy(torch.empty(4, 3, 6, 5, 2).transpose(1, 3), x.transpose(1, 3))
    assert not compute("negate", torch.empty(4, 4), torch.randn(4, 4, dtype=torch.float64))
    assert not compute("negate", torch.empty(4, 4).t(), torch.randn(4, 4))


ATEN = torch.ops.aten
CALLS = {
    "cat": (ATEN.cat.default, lambda x: ([x, x[:, :5], x], -1)),
    "stack": (ATEN.stack.default, lambda x: ([x, -x, x], 1)),
    "repeat": (ATEN.repeat.default, lambda x: (x.view(6, 4, 5), [1, 2, 1])),
    "repeat behind": (ATEN.repeat.default, lambda x: (x.view(6, 4, 5), [1, 1, 3])),
    "repeat_interleave": (ATEN.repeat_interleave.self_int, lambda x: (x.view(6, 4, 5), 3, 1)),
    "reshape": (ATEN.reshape.default, lambda x: (x.view(6, 4, 5).transpose(1, 2), [6, 20])),
    "contiguous": (ATEN.contiguous.default, lambda x: (x.view(6, 4, 5).transpose(1, 2),)),
    "clone": (ATEN.clone.default, lambda x: (x,)),
    "to": (ATEN.to.dtype, lambda x: (x, torch.bfloat16)),
    "clamp": (ATEN.clamp.default, lambda x: (x, -0.5, 0.75)),
    "clamp below": (ATEN.clamp.default, lambda x: (x, None, 0.75)),
    "pow": (ATEN.pow.Tensor_Scalar, lambda x: (x, 2)),
    "rsub": (ATEN.rsub.Scalar, lambda x: (x, 1)),
    "mul_": (ATEN.mul_.Tensor, lambda x: (x.clone(), x)),
    "copy_": (ATEN.copy_.default, lambda x: (torch.zeros(6, 20, dtype=torch.bfloat16), x)),
    "silu": (ATEN.silu.default, lambda x: (x,)),
    "softplus": (ATEN.softplus.default, lambda x: (x, 0.5)),
    "sum": (ATEN.sum.dim_IntList, lambda x: (x.view(6, 4, 5), [-1])),
    "mean": (ATEN.mean.dim, lambda x: (x, [1], True)),
    "amax": (ATEN.amax.default, lambda x: (x.view(6, 4, 5), [2], True)),
    "amin": (ATEN.amin.default, lambda x: (x, [-1])),
}
ROUNDED = ("silu", "softplus", "sum", "mean")


@pytest.mark.parametrize("name", CALLS)
def test_the_table_makes_what_torch_makes(isa, name):
    func, arguments = CALLS[name]
    x = torch.randn(6, 20)
    torch.manual_seed(1)
    wanted = func(*arguments(x))
    got = rewritten(func, arguments(x), {}, lambda: torch.empty(wanted.shape, dtype=wanted.dtype), rows=True)
    assert got is not None and got.dtype is wanted.dtype
    torch.testing.assert_close(got, wanted, rtol=2e-6 if name in ROUNDED else 0, atol=1e-6 if name in ROUNDED else 0)


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (ATEN.cat.default, ([torch.ones(2, 3), torch.ones(2, 3)], 0)),
        (ATEN.add.Tensor, (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.int64))),
        (ATEN.mul.Tensor, (torch.ones(2, 3, dtype=torch.bfloat16), torch.tensor(2.0))),
        (ATEN.pow.Tensor_Scalar, (torch.ones(2, 3), 3)),
        (ATEN.repeat.default, (torch.ones(2, 3, 2), [1, 2, 2])),
        (ATEN.cumsum.default, (torch.ones(2, 3), 1)),
        (ATEN.sum.dim_IntList, (torch.ones(2, 3), [0])),
        (ATEN.mean.dim, (torch.ones(2, 3, 4), [1, 2])),
        (ATEN.softplus.default, (torch.ones(2, 3), 1.0, 5.0)),
    ],
)
def test_the_table_leaves_the_rest_to_torch(func, args):
    assert rewritten(func, args, {}, lambda: torch.empty(4, 3), rows=True) is None
