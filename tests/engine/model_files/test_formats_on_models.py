"""A model of each format, with the reference product alone, has the tokens of its twin with the opened weights."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from core import LLM, SamplingParams
from core.cli.main import main
from core_testing.families import TinyFamily
from core_testing.tinymodels import tiny_llama

sys.path.insert(0, str(Path(__file__).parent))
from checkpoints import write
from run_forms import AutoRound, TorchAORuns

REFERENCE = [f"{op}=reference" for op in ("linear", "lookup", "experts_in", "experts_out")]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
PROMPT = {"prompt_token_ids": [3 + (i * 29) % 90 for i in range(21)]}
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SIZE = 32
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def tokens(path, **options):
    with LLM(str(path), dtype="float32", num_blocks=20, block_size=16, threads=1, **options) as llm:
        return llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids


def rounded(weight, bits, *, zeros, size=SIZE, group=None):
    """Codes `(out, in)`, scales and zero points `(out, groups)` of a weight, and what they mean."""
    group = torch.arange(weight.shape[1]) // size if group is None else group
    count, most = int(group.max()) + 1, 2**bits - 1
    low = torch.stack([weight[:, group == i].amin(1) for i in range(count)], 1).clamp(max=0)
    high = torch.stack([weight[:, group == i].amax(1) for i in range(count)], 1).clamp(min=0)
    if zeros:
        scales = ((high - low) / most).half().float()
        points = (-low / scales).round().clamp(0, most)
    else:
        scales = (torch.maximum(high, -low) / (most // 2)).half().float()
        points = torch.full_like(scales, (most + 1) // 2)
    codes = (weight / scales[:, group] + points[:, group]).round().clamp(0, most)
    return codes.int(), scales, points.int(), (codes - points[:, group]) * scales[:, group]


def words(codes, bits):
    """Codes `(rows, columns)` as words, bit after bit along the columns."""
    each = (codes.long().unsqueeze(-1) >> torch.arange(bits)) & 1
    packed = each.reshape(len(codes), -1, 32) << torch.arange(32)
    return packed.sum(-1).to(torch.int32)


@dataclass(frozen=True)
class GPTQ:
    bits: int = 4
    sym: bool = False
    desc_act: bool = False
    v2: bool = False

    @property
    def settings(self):
        form = "gptq_v2" if self.v2 else "gptq"
        given = {"bits": self.bits, "group_size": SIZE, "sym": self.sym, "desc_act": self.desc_act}
        return {"quant_method": "gptq", **given, "checkpoint_format": form}

    def store(self, name, weight):
        group = torch.arange(weight.shape[1]) // SIZE
        if self.desc_act:
            group = group[torch.randperm(len(group), generator=torch.Generator().manual_seed(1))]
        codes, scales, zeros, meant = rounded(weight, self.bits, zeros=not self.sym, group=group)
        if not self.v2:  # a zero point of 0 has no place below it
            zeros, meant = zeros.clamp(min=1), (codes - zeros.clamp(min=1)[:, group]) * scales[:, group]
        tensors = {
            "qweight": words(codes, self.bits).t().contiguous(),
            "qzeros": words((zeros - (0 if self.v2 else 1)).t(), self.bits),
            "scales": scales.t().half().contiguous(),
            "g_idx": group.int(),
        }
        return tensors, meant


@dataclass(frozen=True)
class AWQ:
    """In the layout `gemm`, which AutoRound has too, in `gemv` or in `gemv_fast`."""

    layout: str = "gemm"
    packing: str = ""

    @property
    def settings(self):
        if self.packing:
            return {"quant_method": "auto-round", "bits": 4, "group_size": SIZE, "packing_format": self.packing}
        return {"quant_method": "awq", "bits": 4, "group_size": SIZE, "version": self.layout}

    def store(self, name, weight):
        codes, scales, zeros, meant = rounded(weight, 4, zeros=True)
        if self.layout == "gemv":  # groups are filled up to 32
            more = (0, 32 - zeros.shape[1])
            tensors = {"qweight": words(codes, 4), "qzeros": words(functional.pad(zeros, more), 4)}
            return {**tensors, "scales": functional.pad(scales, more).half()}, meant
        if self.layout == "gemv_fast":
            values = (-zeros * scales).half()
            shared = {"scales": scales.half(), "scaled_zeros": values}
            filled = {name: functional.pad(one, (0, 32 - one.shape[1])).t() for name, one in shared.items()}
            spread = (one.float().repeat_interleave(SIZE, 1) for one in shared.values())
            return {"qweight": self.pack_fast(codes), **filled}, codes * next(spread) + next(spread)
        tensors = {"qweight": self.pack(codes.t()), "qzeros": self.pack(zeros.t())}
        return {**tensors, "scales": scales.t().half().contiguous()}, meant

    def pack_fast(self, codes):
        """Words of four codes, of tiles of 4 outputs and 64 inputs."""
        runs = codes.view(len(codes), -1, 4, 4, 2).permute(0, 1, 3, 4, 2)  # pair, first or second, run of 8
        tiles = runs.reshape(-1, 4, codes.shape[1] // 64, 64).transpose(1, 2)
        nibbles = tiles.reshape(len(codes) // 4, -1, 4) << torch.tensor([0, 4, 8, 12])
        return nibbles.sum(-1).to(torch.int16)

    def pack(self, codes):
        ordered = codes.unflatten(1, (-1, 8))[:, :, list(AWQ_ORDER)].flatten(1)
        return words(ordered, 4)


@dataclass(frozen=True)
class Compressed:
    """Codes in a byte each, activations as they are."""

    strategy: str = "channel"
    ignore: tuple[str, ...] = ("lm_head",)
    bits: int = 8

    @property
    def settings(self):
        weights = {"num_bits": self.bits, "type": "int", "symmetric": True, "strategy": self.strategy}
        weights |= {"group_size": SIZE} if self.strategy == "group" else {}
        groups = {"g": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
        form = {"quant_method": "compressed-tensors", "format": "int-quantized"}
        return {**form, "config_groups": groups, "ignore": list(self.ignore)}

    def store(self, name, weight):
        if "re:.*v_proj" in self.ignore and name.endswith("v_proj"):
            return {"weight": weight}, weight
        runs = {"tensor": weight.reshape(1, -1), "channel": weight, "group": weight.view(-1, SIZE)}[self.strategy]
        scale = runs.abs().amax(1, keepdim=True) / ((1 << self.bits - 1) - 1)
        codes = (runs / scale).round()
        scales = scale.view(1) if self.strategy == "tensor" else scale.view(len(weight), -1)
        return {"weight": codes.to(torch.int8).view_as(weight), "weight_scale": scales}, (codes * scale).view_as(weight)


@dataclass(frozen=True)
class FP8:
    """A scale for each `block` of outputs and inputs; 0: for all of them."""

    block: tuple[int, int] = (0, 0)
    static: bool = False
    options: ClassVar = {"fp8": {"activations": 16}}

    @property
    def settings(self):
        if self.block == (1, 0):
            return {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}
        given = {"quant_method": "fp8", "activation_scheme": "static" if self.static else "dynamic"}
        return {**given, "weight_block_size": list(self.block)} if self.block[0] else given

    def store(self, name, weight):
        rows, inputs = (size or whole for size, whole in zip(self.block, weight.shape, strict=True))
        blocks = [[part.abs().amax() for part in some.split(inputs, 1)] for some in weight.split(rows)]
        scales = torch.tensor(blocks) / 448
        spread = scales.repeat_interleave(rows, 0)[: len(weight)].repeat_interleave(inputs, 1)[:, : weight.shape[1]]
        codes = (weight / spread).to(torch.float8_e4m3fn)
        given = {"weight_scale_inv": scales} if self.block[0] > 1 else {"weight_scale": scales}
        given = given if self.block[0] else {"weight_scale": scales.view(())}
        fixed = {"input_scale": torch.tensor(0.1)} if self.static else {}
        return {"weight": codes, **given, **fixed}, codes.float() * spread


@dataclass(frozen=True)
class TorchAO:
    """`int4`, or 8 bits with a scale for each output. Experts are plain."""

    bits: int = 4

    @property
    def settings(self):
        data = {"group_size": SIZE, "int4_packing_format": {"_type": "Int4PackingFormat", "_data": "PLAIN"}}
        rows = {"granularity": {"_type": "PerRow", "_data": {"dim": -1}}}
        name, data = ("Int4WeightOnlyConfig", data) if self.bits == 4 else ("Int8WeightOnlyConfig", rows)
        return {"quant_method": "torchao", "quant_type": {"default": {"_type": name, "_data": data}}}

    def store(self, name, weight):
        if ".experts." in name:
            return {"weight": weight}, weight
        if self.bits == 8:
            scale = weight.abs().amax(1, keepdim=True) / 127
            codes = (weight / scale).round()
            return {"_weight_qdata": codes.to(torch.int8), "_weight_scale": scale}, codes * scale
        codes, scales, zeros, meant = rounded(weight, 4, zeros=True)
        signed = (codes - 8) & 15
        packed = (signed[:, ::2] | signed[:, 1::2] << 4).to(torch.uint8).view(torch.int8)
        values = (8 - zeros) * scales  # what code 0 stands for
        return {"_weight_qdata": packed, "_weight_scale": scales.t(), "_weight_zero_point": values.t()}, meant


@dataclass(frozen=True)
class HQQ:
    axis: int = 1

    @property
    def settings(self):
        own = {"nbits": 4, "group_size": SIZE, "axis": self.axis}
        return {"quant_method": "hqq", "quant_config": {"weight_quant_params": own}, "skip_modules": ["lm_head"]}

    def store(self, name, weight):
        groups = weight.reshape((-1, SIZE) if self.axis == 1 else (SIZE, -1))
        low, high = groups.aminmax(dim=self.axis, keepdim=True)
        scale = ((high - low) / 15).half().float()
        zero = (-low / scale).half().float()
        codes = (groups / scale + zero).round().clamp(0, 15)
        half, meant = len(codes) // 2, ((codes - zero) * scale).reshape(weight.shape)
        packed = codes[:half].int() << 4 | codes[half:].int()
        return {"W_q": packed.to(torch.uint8), "scale": scale.half(), "zero": zero.half()}, meant


FORMATS = {
    "fp8": FP8(),
    "fp8 static": FP8(static=True),
    "fp8 in blocks": FP8((24, 40)),
    "fp8 by outputs": FP8((1, 0)),
    "gptq": GPTQ(),
    "gptq sym": GPTQ(sym=True),
    "gptq 3 bits, act-order, v2": GPTQ(bits=3, desc_act=True, v2=True),
    "gptq 8 bits, sym, act-order": GPTQ(bits=8, sym=True, desc_act=True),
    "awq": AWQ(),
    "awq gemv": AWQ("gemv"),
    "awq gemv_fast": AWQ("gemv_fast"),
    "awq of AutoRound": AWQ(packing="auto_round:auto_awq"),
    "AutoRound MXFP4": AutoRound(),
    "AutoRound MXFP8": AutoRound(bits=8),
    "AutoRound NVFP4": AutoRound("nv_fp"),
    "AutoRound FP8": AutoRound("fp", 8),
    "torchao int4": TorchAO(),
    "torchao int8": TorchAO(8),
    "torchao NVFP4": TorchAORuns(),
    "hqq": HQQ(),
    "hqq, axis 0": HQQ(axis=0),
    "compressed-tensors": Compressed(),
    "compressed-tensors, one scale": Compressed("tensor"),
    "compressed-tensors, int4 in bytes": Compressed("group", bits=4),
    "compressed-tensors, mixed layers": Compressed(ignore=("lm_head", "re:.*v_proj")),
}

EXHAUSTIVE = ("AutoRound MXFP8", "AutoRound NVFP4", "AutoRound FP8")
"""Forms of which others are the like."""


MIXTURE = TinyFamily(
    "mixture",
    "Qwen3MoeForCausalLM",
    {
        "model_type": "qwen3_moe",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    },
)


@pytest.fixture(scope="module", params=["llama", "mixture"])
def plain(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain") / request.param
    return (
        tiny_llama(folder, num_hidden_layers=2, intermediate_size=128)
        if request.param == "llama"
        else MIXTURE.write(folder)
    )


def made(plain, folder, tensors, settings=None):
    """The plain checkpoint with other tensors, and a description of its quantization."""
    shutil.copytree(plain, folder)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    described = {} if settings is None else {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32", **described}))
    return folder


def linear(name):
    return name.removesuffix(".weight").rpartition(".")[2] in LINEAR


@pytest.mark.covers("QUANT-01", "QUANT-04", "QUANT-06")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in EXHAUSTIVE)) for name in FORMATS]
)
def test_a_quantized_model_has_the_tokens_of_its_opened_twin(plain, tmp_path, name):
    form, stored, meant = FORMATS[name], {}, {}
    for key, value in load_file(plain / "model.safetensors").items():
        module = key.removesuffix(".weight")
        tensors, opened = form.store(module, value.float()) if linear(key) else ({"weight": value}, value)
        stored |= {f"{module}.{suffix}": one.contiguous() for suffix, one in tensors.items()}
        meant[key] = opened.contiguous()
    twin = tokens(made(plain, tmp_path / "twin", meant), kernel=REFERENCE)
    model, options = made(plain, tmp_path / "model", stored, form.settings), getattr(form, "options", {})
    assert tokens(model, kernel=REFERENCE, plugin_options=options) == twin
    assert len(set(twin)) > 2


ROUNDINGS = {"int8": (127, torch.round), "fp8": (448, lambda codes: codes.to(torch.float8_e4m3fn).float())}
"""The largest code, and how codes are rounded."""


@pytest.mark.covers("QUANT-12", "QUANT-06")
@pytest.mark.parametrize("method", ROUNDINGS)
def test_a_model_that_is_rounded_while_it_loads_has_the_tokens_of_its_rounded_twin(plain, tmp_path, method):
    meant, (largest, nearest) = {}, ROUNDINGS[method]
    for key, value in load_file(plain / "model.safetensors").items():
        scale = value.float().abs().amax(-1, keepdim=True) / largest
        meant[key] = nearest(value.float() / scale) * scale if linear(key) else value
    twin = tokens(made(plain, tmp_path / "twin", meant), kernel=REFERENCE)
    options = {"quantization": method, "plugin_options": {method: {"activations": 16}}}
    assert tokens(plain, kernel=REFERENCE, **options) == twin


@pytest.mark.covers("QUANT-01")
def test_a_gguf_model_has_the_tokens_of_its_opened_twin(tmp_path):
    from core_plugin_gguf.reader import GGUFReader

    file = write("gguf", tmp_path / "gguf")
    reader = GGUFReader()
    meant = {one.name: one.dense(torch.float32).clone() for one in reader.tensors(file, lambda size: None)}
    twin = tokens(made(tmp_path / "plain", tmp_path / "twin", meant), kernel=REFERENCE)
    assert tokens(file, kernel=REFERENCE) == twin


@pytest.mark.covers("QUANT-01", "QUANT-12")
@pytest.mark.parametrize(("asked", "code"), [([], "CORE-P203"), (["--quantization", "int8"], "CORE-P201")])
def test_a_gguf_type_that_nobody_decodes_is_a_row_of_the_choice(tmp_path, capsys, asked, code):
    """The file is sound, and its header is read: what its tensors mean is the matter of a method."""
    file = write("gguf", tmp_path / "gguf")
    data, marker = bytearray(file.read_bytes()), b"output_norm.weight"
    data[data.index(marker) + len(marker) + 12] = 26  # I32 in the place of F32, behind the number of dimensions and one
    file.write_bytes(data)
    assert main(["plugins", "why", str(file), *asked]) == 1
    shown = capsys.readouterr()
    assert "output_norm.weight has type I32, which is not decoded" in shown.out + shown.err
    assert code in shown.err
