"""Layers that ranks divide: every rank's parameters are slices of the whole, and what they give adds up to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_gguf.blocks import decode
from core_plugin_gguf.scheme import GGUFFormat
from core_plugin_unquantized.plain import Plain
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from core.api import CheckpointError, Part, PluginError, QuantContext, Ranks, Stored, WeightForm, WeightRules
from core.layers.builder import Builder
from core.layers.linear import Embedding, Linear
from core.layers.norm import RMSNorm
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.ranks import run_ranks

CPU, INPUTS, OUTPUTS, GROUP = torch.device("cpu"), 512, 64, 32
CONTEXT = QuantContext(CPU, torch.float32, {})


class Coded:
    """Integer or float8 codes in groups of `GROUP` inputs, stored outputs first."""

    def __init__(self, form):
        self._form = form

    def form(self, site, part):
        return self._form

    def stored(self, site, part):
        form = self._form
        by_group = form.inputs and not form.ordered
        axes = (1, None) if form.ordered else (0, 1 if by_group else None)
        scales = Stored("scales", axes, (form.outputs, form.inputs if by_group else 1))
        found = [Stored("codes"), scales]
        if form.zeros:
            found.append(Stored("zeros", scales.axes, scales.per))
        return [*found, Stored("order", (None, 0))] if form.ordered else found

    def read(self, site, part, tensors):
        raw = {name: tensor.raw() for name, tensor in tensors.items()}
        if self._form.ordered:  # groups first
            raw |= {name: raw[name].t() for name in ("scales", "zeros") if name in raw}
        return Part(self._form, raw["codes"], raw["scales"], raw.get("zeros"), raw.get("order"))

    def tensors(self, name, outputs, inputs):
        form = self._form
        groups = -(-outputs // form.outputs), -(-inputs // form.inputs) if form.inputs else 1
        codes = torch.randint(-8, 8, (outputs, inputs), dtype=torch.int8)
        yield PlainTensor(f"{name}.codes", codes if form.codes == "int" else codes.to(torch.float8_e4m3fn))
        groups = groups[::-1] if form.ordered else groups
        yield PlainTensor(f"{name}.scales", torch.rand(groups) + 0.5)
        if form.zeros:
            yield PlainTensor(f"{name}.zeros", torch.randint(-8, 8, groups, dtype=torch.int8))
        if form.ordered:
            yield PlainTensor(f"{name}.order", torch.randperm(inputs) // form.inputs)


class Turned(Coded):
    """4-bit codes as AWQ and GPTQ store them: inputs first, eight neighbouring outputs in a word."""

    def stored(self, site, part):
        return [Stored("codes", (1, 0), (8, 1)), Stored("scales", (1, 0), (1, GROUP))]

    def read(self, site, part, tensors):
        words = tensors["codes"].raw().to(torch.int64)
        codes = ((words.unsqueeze(-1) >> torch.arange(0, 32, 4)) & 15).flatten(1).t()
        return Part(self._form, codes - 8, tensors["scales"].raw().t())

    def tensors(self, name, outputs, inputs):
        yield PlainTensor(f"{name}.codes", torch.randint(-(2**31), 2**31, (inputs, outputs // 8)).int())
        yield PlainTensor(f"{name}.scales", torch.rand(inputs // GROUP, outputs) + 0.5)


class ThreeBits(Coded):
    """3-bit codes: three words hold those of 32 neighbouring inputs."""

    def stored(self, site, part):
        return [Stored("codes", (1, 0), (1, 32), (1, 3)), Stored("scales", (1, 0), (1, GROUP))]

    def read(self, site, part, tensors):
        words = tensors["codes"].raw()
        bits = ((words.to(torch.int64).unsqueeze(-1) >> torch.arange(32)) & 1).permute(0, 2, 1)
        bits = bits.reshape(-1, 3, words.shape[1])
        return Part(self._form, (bits * torch.tensor([1, 2, 4]).view(3, 1)).sum(1).t(), tensors["scales"].raw().t())

    def tensors(self, name, outputs, inputs):
        yield PlainTensor(f"{name}.codes", torch.randint(-(2**31), 2**31, (inputs // 32 * 3, outputs)).int())
        yield PlainTensor(f"{name}.scales", torch.rand(inputs // GROUP, outputs) + 0.5)


class Numbers(Plain):
    def tensors(self, name, outputs, inputs):
        yield PlainTensor(f"{name}.weight", torch.randn(outputs, inputs))


class BlockTensor(PlainTensor):
    """A matrix in blocks, as a GGUF file has it."""

    def __init__(self, name, kind, values):
        super().__init__(name, torch.from_numpy(quantize(values.numpy(), kind)))
        self.shape, self.encoding, self._kind = tuple(values.shape), f"gguf:{kind.name}", kind

    def dense(self, dtype):
        return decode(self.raw(), self._kind, self.shape[1], dtype)


class Blocks(GGUFFormat):
    def __init__(self, kind):
        super().__init__(QuantContext(CPU, torch.float32, {"tensors": _Every(kind.name)}))
        self._stored_as = kind

    def tensors(self, name, outputs, inputs):
        yield BlockTensor(f"{name}.weight", self._stored_as, torch.randn(outputs, inputs))


class _Every(dict):
    def __init__(self, value):
        self.value = value

    def get(self, key, default=None):
        return self.value


def coded(**form):
    return Coded(WeightForm(**{"codes": "int", "bits": 4, "inputs": GROUP, **form}))


FORMATS = {
    "plain": lambda: Numbers(CONTEXT),
    "groups": coded,
    "zeros": lambda: coded(zeros=True),
    "ordered": lambda: coded(ordered=True),
    "ordered_zeros": lambda: coded(ordered=True, zeros=True),
    "int8": lambda: coded(bits=8, inputs=0),
    "int8_rounded": lambda: coded(bits=8, inputs=0, activations="int8:token"),
    "float8_blocks": lambda: coded(codes="float8_e4m3fn", outputs=8, inputs=128),
    "turned": lambda: Turned(WeightForm(codes="int", bits=4, inputs=GROUP)),
    "three_bits": lambda: ThreeBits(WeightForm(codes="int", bits=3, inputs=GROUP)),
    "gguf_q4_0": lambda: Blocks(GGMLQuantizationType.Q4_0),
    "gguf_q8_0": lambda: Blocks(GGMLQuantizationType.Q8_0),
}


@pytest.fixture(params=FORMATS)
def form(request):
    torch.manual_seed(0)
    return FORMATS[request.param]()


def built(form, make, tensors, ranks=None, all_reduce=None):
    """Return the layers that `make(builder)` asks for, filled."""
    build = Builder(form, None, device=CPU, dtype=torch.float32, ranks=ranks, all_reduce=all_reduce)
    layers = make(build)
    WeightFiller(build.groups, NameMap(WeightRules(), build.left_out), CPU).fill(tensors)
    return layers


def of_ranks(form, make, tensors, size):
    """Return the layers of each of `size` ranks."""
    return [built(form, make, tensors, Ranks(rank, size)) for rank in range(size)]


def bias(name, size):
    return PlainTensor(f"{name}.bias", torch.randn(size))


@pytest.mark.parametrize("size", [2, 4])
def test_outputs_of_ranks_one_after_another_are_those_of_one(form, size):
    tensors = [*form.tensors("layer", OUTPUTS, INPUTS), bias("layer", OUTPUTS)]
    make = lambda build: build.linear(INPUTS, OUTPUTS, "layer", bias=True, shard="out")  # noqa: E731
    whole, parts = built(form, make, tensors), of_ranks(form, make, tensors, size)
    assert torch.equal(torch.cat([part.params["weight"] for part in parts]), whole.params["weight"])
    x = torch.randn(3, INPUTS)
    assert [part.splits for part in parts] == [[OUTPUTS // size]] * size
    torch.testing.assert_close(torch.cat([part(x) for part in parts], dim=-1), whole(x), rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [2, 4])
def test_layers_divided_by_inputs_add_up_and_the_bias_counts_once(form, size):
    tensors = [*form.tensors("layer", OUTPUTS, INPUTS), bias("layer", OUTPUTS)]
    make = lambda build: build.linear(INPUTS, OUTPUTS, "layer", bias=True, shard="in")  # noqa: E731
    whole, parts = built(form, make, tensors), of_ranks(form, make, tensors, size)
    assert torch.equal(torch.cat([part.params["weight"] for part in parts], dim=1), whole.params["weight"])
    assert [part.site.bias for part in parts] == [True] + [False] * (size - 1)
    x = torch.randn(3, INPUTS)
    if "int8:token" in form.form(whole.site, "").activations:
        return  # each rank rounds its own inputs, with a scale of its own
    total = sum(part(piece.contiguous()) for part, piece in zip(parts, x.chunk(size, dim=-1), strict=True))
    torch.testing.assert_close(total, whole(x), rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [2, 4])
def test_parts_are_divided_by_themselves_and_few_heads_are_copied(form, size):
    """Four heads of queries, two of keys and values, of sixteen outputs each: on four ranks two have the same keys."""
    sizes, units = {"q": 64, "k": 32, "v": 32}, dict.fromkeys("qkv", 16)
    tensors = [tensor for part, rows in sizes.items() for tensor in form.tensors(f"attn.{part}", rows, INPUTS)]
    make = lambda build: build.merged_linear(INPUTS, sizes, "attn", shard="out", units=units)  # noqa: E731
    whole = built(form, make, tensors)
    rows = dict(zip("qkv", whole.params["weight"].split([64, 32, 32]), strict=True))
    for rank, layer in enumerate(of_ranks(form, make, tensors, size)):
        key = rank * 2 // size
        due = [rows["q"].chunk(size)[rank], *(rows[name].split(32 // min(size, 2))[key] for name in "kv")]
        assert layer.splits == [len(one) for one in due]
        assert torch.equal(layer.params["weight"], torch.cat(due))


SPLITS = {
    "halves": ({"gate": 32, "up": 32}, {}, lambda parts: torch.cat(list(parts.values()))),
    "interleaved": (
        {"gate": 32, "up": 32},
        {},
        lambda parts: torch.stack(list(parts.values()), 1).flatten(0, 1),
    ),
    "heads": (
        {"q": 32, "k": 32, "v": 32},
        dict.fromkeys("qkv", 8),
        lambda parts: torch.stack([part.view(4, 8, -1) for part in parts.values()], 1).flatten(0, 2),
    ),
    "groups of heads": (
        {"q": 64, "k": 32, "v": 32},
        dict.fromkeys("qkv", 16),
        lambda parts: torch.cat([part.view(2, -1, part.shape[-1]) for part in parts.values()], 1).flatten(0, 1),
    ),
}


@pytest.mark.covers("MODEL-02")
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("split", SPLITS)
def test_a_fused_tensor_fills_the_parts_that_it_holds(split, size):
    sizes, units, fuse = SPLITS[split]
    form = Numbers(CONTEXT)
    apart = {name: torch.randn(rows, 24) for name, rows in sizes.items()}
    biases = {name: torch.randn(rows, 1) for name, rows in sizes.items()}
    plain = [PlainTensor(f"block.{name}.weight", part) for name, part in apart.items()]
    plain += [PlainTensor(f"block.{name}.bias", part.view(-1)) for name, part in biases.items()]
    fused = [PlainTensor("block.all.weight", fuse(apart)), PlainTensor("block.all.bias", fuse(biases).view(-1))]
    kind = {"fused": "all", "split": "halves" if split == "halves" else "interleaved"}
    rest = {"shard": "out", "units": units, "bias": True}
    for rank in range(size):
        due = built(form, lambda build: build.merged_linear(24, sizes, "block", **rest), plain, Ranks(rank, size))
        found = built(
            form, lambda build: build.merged_linear(24, sizes, "block", **rest, **kind), fused, Ranks(rank, size)
        )
        assert found.splits == due.splits
        assert torch.equal(found.params["weight"], due.params["weight"])
        assert torch.equal(found.params["bias"], due.params["bias"])


@pytest.mark.parametrize("size", [1, 2])
def test_every_form_may_be_fused(form, size):
    """The rows of one stored weight are those of two parts, by turns of a head each."""
    sizes, units = {"k": 32, "v": 32}, dict.fromkeys("kv", 16)
    tensors = list(form.tensors("attn.kv", 64, INPUTS))
    whole = built(form, lambda build: build.linear(INPUTS, 64, "attn.kv"), tensors).params["weight"]
    kind = {"shard": "out", "units": units, "fused": "kv", "split": "interleaved"}
    for rank in range(size):
        layer = built(
            form, lambda build: build.merged_linear(INPUTS, sizes, "attn", **kind), tensors, Ranks(rank, size)
        )
        mine = whole.view(2, 2, 16, INPUTS)[rank * 2 // size : (rank + 1) * 2 // size]
        assert torch.equal(layer.params["weight"], mine.transpose(0, 1).flatten(0, 2))


def test_a_fused_tensor_is_released_once_when_all_its_parts_were_taken():
    released = []
    tensor = PlainTensor("mlp.both.weight", torch.randn(6, 4))
    tensor.release = lambda: released.append(tensor.reads)
    built(Numbers(CONTEXT), lambda build: build.merged_linear(4, {"a": 2, "b": 4}, "mlp", fused="both"), [tensor])
    assert released == [2]


# In the other two forms several outputs share something: their number is one that divides.
@pytest.mark.parametrize("form", sorted(FORMATS.keys() - {"float8_blocks", "turned"}), indirect=True)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_a_vocabulary_that_does_not_divide(form, size, tied):
    """Sixty-one rows: the last rank has fewer. Rows of other ranks are zeros, logits one after another are whole."""

    def make(build):
        embedding = build.embedding(61, INPUTS, "embed")
        return embedding, build.lm_head(61, INPUTS, "head", tied_to=embedding if tied else None)

    tensors = [*form.tensors("embed", 61, INPUTS), *([] if tied else form.tensors("head", 61, INPUTS))]
    embedding, head = built(form, make, tensors)
    parts = of_ranks(form, make, tensors, size)
    ids, x = torch.tensor([0, 15, 16, 30, 31, 60, 60]), torch.randn(3, INPUTS)
    assert torch.equal(sum(part[0](ids) for part in parts), embedding(ids))
    found = torch.cat([part[1](x) for part in parts], dim=-1)
    assert found.shape == (3, 61)
    torch.testing.assert_close(found, head(x), rtol=0, atol=1e-3)


def test_rows_of_other_ranks_are_zeros_whatever_stands_in():
    values = torch.full((4, 2), torch.nan)
    values[2:] = 1
    make = lambda build: build.embedding(4, 2, "embed")  # noqa: E731
    first = built(Numbers(CONTEXT), make, [PlainTensor("embed.weight", values)], Ranks(0, 2))
    assert torch.equal(first(torch.tensor([2, 3])), torch.zeros(2, 2))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("heads", [4, 2])
def test_a_norm_over_all_heads_sees_those_of_other_ranks(heads, size):
    """Norms of queries (four heads) and of keys (two, which four ranks have copies of)."""
    width = heads * 8
    weight, x, residual = torch.randn(width), torch.randn(5, width), torch.randn(5, width)
    tensors = [PlainTensor("norm.weight", weight)]

    def rank(ranks, all_reduce):
        make = lambda build: build.rms_norm(width, 1e-5, "norm", shard="out", unit=8)  # noqa: E731
        layer = built(Numbers(CONTEXT), make, tensors, ranks, all_reduce)
        unit = slice(ranks.rank * heads // size * 8, (ranks.rank + max(1, size // heads)) * heads // size * 8)
        return layer(x[:, unit]), layer.add(x[:, unit], residual[:, unit]), unit

    whole = built(Numbers(CONTEXT), lambda build: build.rms_norm(width, 1e-5, "norm"), tensors)
    for normed, (added, total), unit in run_ranks(size, rank):
        torch.testing.assert_close(normed, whole(x)[:, unit])
        torch.testing.assert_close(added, whole.add(x, residual)[0][:, unit])
        assert torch.equal(total, (x + residual)[:, unit])


REFUSALS = {
    "heads": (lambda build: build.heads(6, 6), "CORE-M183", "6 heads with 6 heads of keys and values"),
    "kv heads": (lambda build: build.heads(12, 3), "CORE-M183", "among 4 ranks"),
    "outputs": (lambda build: build.linear(4, 6, "up", shard="out"), "CORE-M184", "6 outputs of 'up'"),
    "inputs": (lambda build: build.linear(6, 4, "down", shard="in"), "CORE-M184", "6 inputs of 'down'"),
    "units": (
        lambda build: build.merged_linear(4, {"q": 24}, "attn", shard="out", units={"q": 8}),
        "CORE-M184",
        "24 outputs of 'attn.q' in units of 8",
    ),
    "rows": (lambda build: build.embedding(5, 4, "embed"), "CORE-M184", "5 rows of 'embed'"),
    "turns": (
        lambda build: build.merged_linear(
            4, {"a": 24, "b": 12}, "x", shard="out", units={"b": 4}, fused="ab", split="interleaved"
        ),
        "CORE-M184",
        "'x",
    ),
    "norm": (lambda build: build.rms_norm(8, 1e-6, "norm", shard="out"), "CORE-M186", "norm 'norm'"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_four_ranks_cannot_divide_is_refused_by_name(what):
    make, code, words = REFUSALS[what]
    with pytest.raises(CheckpointError) as caught:
        make(Builder(Numbers(CONTEXT), None, device=CPU, dtype=torch.float32, ranks=Ranks(3, 4)))
    assert caught.value.code == code and words in caught.value.message


@pytest.mark.parametrize(
    ("form", "shard", "sizes", "words"),
    [
        (coded(), "in", (8, 96), ["takes 48 to 96 of 96", "32 inputs together", "'layer.scales'"]),
        (coded(outputs=8), "out", (24, 64), ["takes 12 to 24 of 24", "8 outputs together"]),
        (Turned(WeightForm(codes="int", inputs=GROUP)), "out", (24, 64), ["8 outputs together", "'layer.codes'"]),
        (Blocks(GGMLQuantizationType.Q4_0), "in", (8, 96), ["takes 48 to 96 of 96", "32 inputs together"]),
    ],
)
def test_a_cut_inside_a_group_is_refused_with_both_numbers(form, shard, sizes, words):
    tensors = form.tensors("layer", *sizes)
    with pytest.raises(CheckpointError) as caught:
        built(form, lambda build: build.linear(sizes[1], sizes[0], "layer", shard=shard), tensors, Ranks(1, 2))
    assert caught.value.code == "CORE-M185" and "layer 'layer'" in caught.value.message
    assert all(word in caught.value.message for word in words)


def test_plain_numbers_may_replace_blocks_on_ranks_too():
    """An update brings plain weights for a layer whose checkpoint had blocks."""
    values = torch.randn(8, 64)
    make = lambda build: build.linear(64, 8, "layer", shard="in")  # noqa: E731
    part = built(Blocks(GGMLQuantizationType.Q4_0), make, [PlainTensor("layer.weight", values)], Ranks(1, 2))
    assert torch.equal(part.params["weight"], values[:, 32:])


@pytest.mark.parametrize("shape", [(8, 32), (4, 64), (16, 64)])
def test_a_tensor_of_another_size_is_refused_as_on_one_rank(shape):
    tensors = [PlainTensor("layer.weight", torch.zeros(shape))]
    with pytest.raises(CheckpointError, match=r"CORE-M122 .*'layer\.weight'"):
        built(Numbers(CONTEXT), lambda build: build.linear(64, 8, "layer", shard="in"), tensors, Ranks(0, 2))


def test_one_rank_makes_no_wrapper_and_reads_tensors_as_they_are():
    given = {}

    class Seen(Numbers):
        def read(self, site, part, tensors):
            given.update({site.module(part): tensors["weight"]})
            return super().read(site, part, tensors)

    def make(build):
        return [
            build.embedding(8, 4, "embed"),
            build.linear(4, 8, "up", shard="out"),
            build.linear(8, 4, "down", shard="in"),
            build.merged_linear(4, {"q": 8}, "attn", shard="out", units={"q": 4}),
            build.rms_norm(4, 1e-6, "norm", shard="out"),
        ]

    shapes = {"embed": (8, 4), "up": (8, 4), "down": (4, 8), "attn.q": (8, 4)}
    tensors = {name: PlainTensor(f"{name}.weight", torch.randn(shape)) for name, shape in shapes.items()}
    layers = built(Seen(CONTEXT), make, [*tensors.values(), PlainTensor("norm.weight", torch.ones(4))], all_reduce=1)
    assert [type(layer) for layer in layers] == [Embedding, Linear, Linear, Linear, RMSNorm]
    assert all(given[name] is tensor for name, tensor in tensors.items())


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_is_one_of_its_group(rank, size):
    with pytest.raises(ValueError, match="is not one of"):
        Ranks(rank, size)


def test_the_error_of_one_rank_ends_the_others():
    def work(ranks, all_reduce):
        if ranks.rank == 1:
            raise KeyError("rank 1")
        return all_reduce(torch.ones(1))

    with pytest.raises(KeyError, match="rank 1"):
        run_ranks(3, work)


@pytest.mark.parametrize(
    ("name", "due"),
    [
        ("model.layers.3.mlp.experts.17.w1.weight", "layers.3.mlp.17.gate_proj.weight"),
        ("model.layers.3.mlp.experts.17.w2.weight", "layers.3.mlp.experts.17.w2.weight"),
        ("model.norm.weight", "norm.weight"),
        ("models.norm.weight", "models.norm.weight"),
        ("h.0.ln.weight", "0.ln.weight"),
        ("h.weight", "h.weight"),
    ],
)
def test_stars_of_renames_stand_for_one_component_each(name, due):
    renames = [("model.layers.*.mlp.experts.*.w1.", "layers.*.mlp.*.gate_proj."), ("model.", ""), ("h.*.", "*.")]
    assert NameMap(WeightRules(rename=renames), ())(name) == due


@pytest.mark.parametrize("size", [1, 2, 4])
def test_blocks_of_a_block_diagonal_layer_are_divided(form, size):
    """Each of four blocks reads its own inputs; a rank has some blocks, of each part of the outputs."""
    blocks, inputs, parts = 4, 2 * GROUP, {"first": 8, "second": 16}
    tensors = [
        tensor
        for block in range(blocks)
        for part, rows in parts.items()
        for tensor in (*form.tensors(f"gates.{block}.{part}", rows, inputs), bias(f"gates.{block}.{part}", rows))
    ]
    sizes = {part: blocks * rows for part, rows in parts.items()}
    make = lambda build: build.block_linear(blocks * inputs, sizes, "gates", blocks, bias=True, shard="out")  # noqa: E731
    alone = [
        built(form, lambda build, at=block: build.merged_linear(inputs, parts, f"gates.{at}", bias=True), some)
        for block in range(blocks)
        for some in [[one for one in tensors if one.name.startswith(f"gates.{block}.")]]
    ]
    x = torch.randn(3, blocks * inputs)
    each = [layer(own).split([8, 16], dim=1) for layer, own in zip(alone, x.chunk(blocks, dim=1), strict=True)]
    found = of_ranks(form, make, tensors, size)
    for rank, layer in enumerate(found):
        own = each[rank * blocks // size : (rank + 1) * blocks // size]
        due = torch.cat([one[0] for one in own] + [one[1] for one in own], dim=1)
        torch.testing.assert_close(layer(x.chunk(size, dim=1)[rank].contiguous()), due)
        assert layer.splits == [32 // size, 64 // size]


def test_a_block_diagonal_layer_says_what_does_not_fit():
    build = Builder(Numbers(CONTEXT), None, device=CPU, dtype=torch.float32)
    layer = build.block_linear(8, {"gate": 4}, "gates", 2)
    with pytest.raises(PluginError, match=r"CORE-P170.*block-diagonal linear 'gates'.*tokens, 8"):
        layer(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="are not 3 blocks"):
        build.block_linear(8, {"gate": 6}, "others", 3)
    divided = Builder(Numbers(CONTEXT), None, device=CPU, dtype=torch.float32, ranks=Ranks(0, 4))
    with pytest.raises(CheckpointError, match=r"CORE-M184.*2 blocks of 'gates'"):
        divided.block_linear(8, {"gate": 4}, "gates", 2, shard="out")


def test_bias_of_a_divided_layer_is_left_out_where_another_rank_adds_it():
    build = Builder(Numbers(CONTEXT), None, device=CPU, dtype=torch.float32, ranks=Ranks(1, 2))
    build.linear(8, 4, "down", bias=True, shard="in")
    names = NameMap(WeightRules(), build.left_out)
    assert (names("down.bias"), names("down.weight")) == (None, "down.weight")


@pytest.mark.parametrize("size", [1, 2, 4])
def test_parts_of_a_parameter_are_divided_each_by_itself(size):
    """Eight channels of values, in heads of two, and two groups of three: on four ranks two have the same group."""
    values, shared, more = torch.randn(8, 5), torch.randn(6, 5), torch.randn(6, 5)
    parts = ((8, 2), (6, 3), (6, 3))
    tensors = [PlainTensor("conv.weight", torch.cat([values, shared, more]))]
    for rank in range(size):
        make = lambda build: build.parameter("conv.weight", (20, 5), shard="out", parts=parts)  # noqa: E731
        found = built(Numbers(CONTEXT), make, tensors, Ranks(rank, size))()
        group = slice(rank * 2 // size * 3, (rank * 2 // size + max(1, 2 // size)) * 3)
        assert torch.equal(found, torch.cat([values.chunk(size)[rank], shared[group], more[group]]))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_parameter_is_divided_along_the_dimension_of_its_heads(size):
    stored, several = torch.randn(1, 1, 4, 1), [torch.randn(8, 3) for _ in range(3)]
    tensors = [PlainTensor("decay", stored), *(PlainTensor(f"{part}.weight", one) for part, one in zip("qkv", several))]

    def make(build):
        decay = build.parameter("decay", (1, 1, 4, 1), shard="out", axis=2)
        return decay, build.parameter([f"{part}.weight" for part in "qkv"], (3, 8, 3), shard="out", axis=1, unit=2)

    for rank in range(size):
        decay, stack = built(Numbers(CONTEXT), make, tensors, Ranks(rank, size))
        assert torch.equal(decay(), stored.chunk(size, dim=2)[rank])
        assert torch.equal(stack(), torch.stack(several).chunk(size, dim=1)[rank])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_of_a_stack_of_heads_each_rank_reads_its_own(size):
    tensors = [PlainTensor(f"norms.{head}.weight", torch.full((3,), float(head))) for head in range(4)]
    names = [tensor.name for tensor in tensors]
    for rank in range(size):
        make = lambda build: build.parameter(names, (4, 3), shard="out", unit=1)  # noqa: E731
        found = built(Numbers(CONTEXT), make, tensors, Ranks(rank, size))()
        assert found[:, 0].tolist() == list(range(rank * 4 // size, (rank + 1) * 4 // size))


def test_parts_that_are_not_all_of_a_parameter_are_a_mistake():
    build = Builder(Numbers(CONTEXT), None, device=CPU, dtype=torch.float32, ranks=Ranks(0, 2))
    with pytest.raises(ValueError, match="the parts of 'conv' are not 20 entries"):
        build.parameter("conv", (20, 5), shard="out", parts=((8, 2), (6, 3)))


def test_values_of_heads_are_those_of_the_rank():
    build = Builder(Numbers(CONTEXT), SimpleNamespace(), device=CPU, dtype=torch.float32, ranks=Ranks(3, 4))
    share = build.heads(8, 2)
    assert (share.heads, share.kv_heads, share.of([0, 1, 2, 3, 4, 5, 6, 7])) == (2, 1, [6, 7])
