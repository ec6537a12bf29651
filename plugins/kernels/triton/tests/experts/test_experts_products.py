"""Products with experts' weights in the interpreter, against their definition in float64 and the reference form."""

import pytest
import torch
from core_plugin_kernels_triton.experts.products import ExpertsIn, ExpertsOut
from core_plugin_kernels_triton.experts.sort import by_expert

from core.api import PLAIN, LayerSite, ProductPlace
from core.ops import experts as reference
from core_testing.conformance.tools.parts import plain_part

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.02, torch.float16: 0.003}


class Layer:
    """A product with random weights, which are rounded to the compute dtype."""

    def __init__(self, kind, experts, rows, inputs, *, dtype=torch.float32, bias=True, seed=0):
        rng = torch.Generator().manual_seed(seed)
        parts = [(f"{expert}.{part}", size) for expert in range(experts) for part, size in enumerate(rows)]
        site = LayerSite("experts", "experts", inputs, parts, bias, experts=experts)
        self.product = kind(ProductPlace(site, (PLAIN,) * len(parts), CPU, dtype), {})
        sizes = self.product.sizes().items()
        self.params = {name: torch.full(shape, torch.nan, dtype=kept) for name, (shape, kept) in sizes}
        for index, (_, size) in reversed(list(enumerate(parts))):
            part = plain_part(torch.randn(size, inputs, generator=rng))
            part.bias = torch.randn(size, generator=rng) if bias else None
            self.product.pack(part, index, self.params)
        self.weight = self.params["weight"].double()
        self.bias = self.params["bias"].double() if bias else torch.zeros(self.weight.shape[:2]).double()

    def __call__(self, *given):
        return self.product.apply(*given, self.params)

    def of(self, expert, row):
        return self.weight[expert] @ row.double() + self.bias[expert]


def chosen(tokens, k, experts, seed=0):
    """Different experts of each token; some have none, by -1 or by a number behind the last."""
    rng = torch.Generator().manual_seed(seed)
    ids = torch.rand(tokens, experts, generator=rng).argsort(1)[:, :k].int().contiguous()
    strange = torch.rand(tokens, k, generator=rng)
    ids[strange < 0.1] = -1
    ids[strange > 0.9] = experts + 3
    return ids


def apart(x):
    """Return the same numbers in rows with NaN and infinity between them."""
    wide = torch.full((len(x) + 1, x.shape[1] + 7), torch.nan, dtype=x.dtype)
    wide[:, ::2] = torch.inf
    return wide[:-1, 3 : 3 + x.shape[1]].copy_(x)


def sorted_pairs(ids, experts):
    order = sorted(range(ids.numel()), key=lambda pair: (ids.flatten()[pair].item() % 2**32, pair))
    return [pair for pair in order if 0 <= ids.flatten()[pair] < experts]


def held(ids, experts, *, dtype=torch.float32, bias=True, rows=(9, 9), inputs=20):
    """Hold both products to their definition; rows that nobody reads are not numbers."""
    (tokens, k), pairs = ids.shape, sorted_pairs(ids, experts)
    into = Layer(ExpertsIn, experts, rows, inputs, dtype=dtype, bias=bias)
    out = Layer(ExpertsOut, experts, (11,), 7, dtype=dtype, bias=bias, seed=1)
    rng = torch.Generator().manual_seed(2)
    x, weights = torch.randn(tokens, inputs, generator=rng).to(dtype), torch.rand(tokens, k, generator=rng)
    inner = torch.randn(tokens * k, 7, generator=rng).to(dtype)
    inner[len(pairs) :] = torch.nan
    due = torch.zeros(tokens * k, sum(rows), dtype=torch.float64)
    total = torch.zeros(tokens, 11, dtype=torch.float64)
    for place, pair in enumerate(pairs):
        token, choice = divmod(pair, k)
        due[place] = into.of(ids[token, choice], x[token])
        total[token] += weights[token, choice].double() * out.of(ids[token, choice], inner[place])
    allowed = {"rtol": TOLERANCE[dtype], "atol": 4 * TOLERANCE[dtype]}
    found, summed = into(apart(x), ids), out(apart(inner), weights, ids)
    assert found.dtype == summed.dtype == dtype
    torch.testing.assert_close(found.double(), due, **allowed)
    torch.testing.assert_close(summed.double(), total, **allowed)


@pytest.mark.covers("MOE-07")
@pytest.mark.parametrize("tokens, k, experts", [(1, 1, 1), (1, 2, 5), (7, 3, 5), (23, 2, 4), (40, 1, 3), (5, 8, 9)])
def test_rows_are_in_the_order_of_the_reference(tokens, k, experts):
    ids = chosen(tokens, k, experts)
    order, starts = by_expert(ids, experts)
    _, counts = reference.by_expert(torch.where((ids < 0) | (ids >= experts), experts, ids), experts)
    pairs = sorted_pairs(ids, experts)
    assert order[: len(pairs)].tolist() == pairs and sorted(order.tolist()) == list(range(ids.numel()))
    assert starts.diff().tolist() == [*counts, ids.numel() - len(pairs)] and starts[0] == 0


@pytest.mark.covers("MOE-07", "MOE-08")
@pytest.mark.parametrize("tokens, k, experts", [(1, 1, 1), (1, 2, 5), (9, 3, 5), (37, 2, 3), (6, 8, 9)])
def test_products_are_those_of_their_definition(tokens, k, experts):
    held(chosen(tokens, k, experts), experts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_short_types(dtype):
    held(chosen(9, 2, 4), 4, dtype=dtype)


@pytest.mark.parametrize("expert", [0, 4, -1, 5])
def test_all_rows_on_one_expert_or_on_none(expert):
    held(torch.full((35, 1), expert, dtype=torch.int32), 5, bias=False)


def test_one_part_and_odd_sizes():
    held(chosen(5, 2, 3), 3, rows=(33,), inputs=1)


def test_no_tokens():
    into, out = Layer(ExpertsIn, 3, (5,), 8), Layer(ExpertsOut, 3, (6,), 5)
    ids = torch.empty(0, 2, dtype=torch.int32)
    assert into(torch.empty(0, 8), ids).shape == (0, 5)
    assert out(torch.empty(0, 5), torch.empty(0, 2), ids).shape == (0, 6)


def test_a_token_s_result_does_not_depend_on_the_others():
    """Bit for bit: alone, where a tile begins at each row, and among many, where tiles are dense."""
    into, out = Layer(ExpertsIn, 3, (9, 9), 40), Layer(ExpertsOut, 3, (11,), 18)
    ids, x, weights = chosen(50, 2, 3), torch.randn(50, 40), torch.rand(50, 2)
    many = out(into(x, ids), weights, ids)
    for token in (0, 17, 49):
        of = slice(token, token + 1)
        alone = out(into(x[of], ids[of]), weights[of], ids[of])
        assert torch.equal(alone, many[of])
