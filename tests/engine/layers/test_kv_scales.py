"""Scales that a checkpoint gives for a float8 cache: read by name, used by the backend, and missing ones are 1."""

import json

import numpy as np
import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import library
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
from safetensors.torch import load_file, save_file

from core.api import CheckpointError
from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.options.engine import KVOptions
from core.selection.kv_dtype import demanded_kv_dtype

SITE = AttentionSite(0, 4, 2, 32, 32**-0.5)
CPU, E4M3 = torch.device("cpu"), torch.float8_e4m3fn
SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}


class Backend(TorchSdpaBackend):
    """Tells which scales it was given."""

    def layer(self, site):
        layer = super().layer(site)
        self.given = getattr(self, "given", {})
        layer.use_scales = lambda *both: self.given.__setitem__(site.layer, tuple(round(float(one), 4) for one in both))
        return layer


@pytest.fixture
def scaled(checkpoint, tmp_path):
    """Return a function that writes a checkpoint with more tensors: name below the attention module -> value."""

    def make(found):
        directory = checkpoint("llama")
        values = load_file(directory / "model.safetensors")
        values |= {f"model.layers.{layer}.self_attn.{name}": value for (layer, name), value in found.items()}
        for file in directory.iterdir():
            if file.suffix == ".json":
                (tmp_path / file.name).write_bytes(file.read_bytes())
        save_file(values, tmp_path / "model.safetensors", metadata={"format": "pt"})
        return tmp_path

    return make


@pytest.mark.covers("QUANT-08")
def test_scales_are_read_by_every_name_and_missing_ones_are_one(scaled, load):
    directory = scaled(
        {
            (0, "k_scale"): torch.tensor(0.5),
            (0, "v_scale"): torch.tensor([0.25]),
            (0, "q_scale"): torch.tensor(3.0),
            (1, "k_proj.output_scale"): torch.tensor([2.0], dtype=torch.bfloat16),
            (1, "v_proj.output_scale"): torch.tensor([-1.0]),
            (2, "kv_scale"): torch.tensor(4.0),
        }
    )
    loaded = load(directory, kv_dtype="float8_e4m3fn", attention_backends=Backend)
    assert loaded.backend.given == {0: (0.5, 0.25), 1: (2.0, 1.0), 2: (4.0, 4.0)}


def test_a_cache_of_the_models_own_dtype_needs_no_scales(scaled, load):
    directory = scaled({(0, "k_scale"): torch.tensor(0.5)})
    assert set(load(directory, attention_backends=Backend).backend.given.values()) == {(1.0, 1.0)}
    load(directory)  # a backend that takes none


@pytest.mark.parametrize(
    ("found", "code", "named"),
    [
        ({(0, "k_scale"): torch.ones(4)}, "CORE-M129", "layers.0.self_attn.k_scale"),
        ({(0, "k_scale"): torch.ones(1), (0, "k_proj.k_scale"): torch.ones(1)}, "CORE-M124", "0.self_attn.k_scale"),
        ({(9, "k_scale"): torch.ones(1)}, "CORE-M120", "layers.9.self_attn.k_scale"),
        ({(0, "k_zero_point"): torch.ones(1)}, "CORE-M120", "layers.0.self_attn.k_zero_point"),
        ({(1, "k_scale"): torch.zeros(1)}, "CORE-M129", "layers.1.self_attn.k_scale' holds 0"),
        ({(1, "v_scale"): torch.tensor(-2.0)}, "CORE-M129", "layers.1.self_attn.v_scale' holds -2"),
        ({(1, "k_proj.k_scale"): torch.tensor([float("nan")])}, "CORE-M129", "self_attn.k_proj.k_scale' holds nan"),
        ({(1, "kv_scale"): torch.tensor(float("inf"))}, "CORE-M129", "layers.1.self_attn.kv_scale' holds inf"),
    ],
)
def test_tensors_that_are_no_scales_are_named(scaled, load, found, code, named):
    with pytest.raises(CheckpointError, match=named) as caught:
        load(directory := scaled(found), kv_dtype="float8_e4m3fn", attention_backends=Backend)
    assert caught.value.code == code and caught.value.message.startswith(f"{directory}: ")


def test_a_backend_that_takes_no_scales_is_told(scaled, load):
    directory = scaled({(1, "v_scale"): torch.tensor(0.5)})
    with pytest.raises(CheckpointError, match=r"layers\.1\.self_attn") as caught:
        load(directory, kv_dtype="float8_e4m3fn")
    assert caught.value.code == "CORE-M144"
    ones = scaled({(1, "v_scale"): torch.tensor(1.0)})
    load(ones, kv_dtype="float8_e4m3fn")


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({}, None),
        ({"kv_cache_scheme": None}, None),
        ({"kv_cache_scheme": SCHEME}, "float8_e4m3fn"),
        ({"kv_cache_scheme": {"num_bits": 8}}, "int8"),
        ({"kv_cache_scheme": {**SCHEME, "num_bits": 4}}, None),
        ({"kv_cache_quant_algo": "FP8"}, "float8_e4m3fn"),
        ({"kv_cache_quant_algo": "INT8"}, "int8"),
        ({"kv_cache_quant_algo": "NVFP4"}, None),
        ({"kv_cache_quant_algo": None}, None),
    ],
)
def test_what_a_checkpoint_asks_for_is_the_automatic_dtype(config, dtype):
    assert demanded_kv_dtype(json.loads(json.dumps(config))) == dtype
    assert KVOptions().concrete_dtype("bfloat16", dtype) == (dtype or "bfloat16")
    assert KVOptions(kv_dtype="bfloat16").concrete_dtype("bfloat16", dtype) == "bfloat16"


def attended(kind, k, v, q, scales, kv_dtype=E4M3, queries=1, dtype=torch.float32):
    """Store all keys and values in scattered blocks, and let the last tokens attend."""
    block, tokens = 32, len(k)
    blocks = np.random.default_rng(0).permutation(-(-tokens // block)).astype(np.int32) + 1
    backend = kind(AttentionContext(CPU, dtype, kv_dtype, block))
    layer, layout = backend.layer(SITE), backend.kv_layout(SITE)
    layer.use_scales(*(torch.as_tensor(scale) for scale in scales))
    cache = torch.zeros(len(blocks) + 1, *layout.block_shape, dtype=layout.dtype)
    places = np.arange(tokens)
    slots = torch.from_numpy(blocks[places // block].astype(np.int64) * block + places % block)

    def plan(count):
        starts, lengths = np.array([0, count], np.int32), np.array([tokens], np.int32)
        return backend.plan(
            BatchView(starts, lengths, torch.from_numpy(blocks)[None], slots[tokens - count :], count, tokens)
        )

    layer.write_kv(k.to(dtype), v.to(dtype), cache, plan(tokens))
    return layer.forward(q[-queries:].to(dtype), cache, plan(queries)).float()


@pytest.mark.covers("ATTN-03", "ATTN-08")
@pytest.mark.parametrize("queries", [1, 60])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scaled_caches_agree_and_keep_more_of_large_values(queries, dtype):
    torch.manual_seed(0)
    kinds = [TorchSdpaBackend, *([NativeAttentionBackend] if library.available() else [])]
    q = torch.randn(700, 4, 32) / 500
    k, v = torch.randn(700, 2, 32) * 500, torch.randn(700, 2, 32) * 900
    exact = attended(TorchSdpaBackend, k, v, q, (1.0, 1.0), torch.float32, queries)
    scales = (float(k.abs().max()) / 448, float(v.abs().max()) / 448)
    with_scales = [attended(kind, k, v, q, scales, queries=queries, dtype=dtype) for kind in kinds]
    without = [attended(kind, k, v, q, (1.0, 1.0), queries=queries, dtype=dtype) for kind in kinds]
    size = float(exact.abs().max())
    for found, plain in zip(with_scales, without):
        assert (found - exact).abs().max() < 0.5 * (plain - exact).abs().max()
        tolerance = 1e-4 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(found, with_scales[0], rtol=tolerance, atol=tolerance * size)
    small = [attended(kind, k / 9999, v / 9999, q, (1e-4, 1e-4), queries=queries) for kind in kinds]
    for found in small:
        torch.testing.assert_close(found, small[0], rtol=1e-4, atol=1e-6)


def test_heads_in_ranges_of_their_own_have_scales_of_their_own():
    torch.manual_seed(0)
    factors = torch.tensor([1e4, 1e-3])[:, None]
    k, v, q = torch.randn(60, 2, 32) * factors, torch.randn(60, 2, 32), torch.randn(60, 4, 32)
    q = q / factors.repeat_interleave(2, dim=0)
    exact = attended(TorchSdpaBackend, k, v, q, (1.0, 1.0), torch.float32, 30)
    found = attended(TorchSdpaBackend, k, v, q, (factors.flatten() / 100, torch.tensor(0.01)), queries=30)
    assert (found - exact).abs().max() < 0.1 * exact.abs().max()


def test_scales_of_heads_reach_a_backend_that_takes_them(scaled, load):
    class ByHead(TorchSdpaBackend):
        def layer(self, site):
            layer = super().layer(site)
            layer.use_scales = lambda *both: seen.append([one.tolist() for one in both])
            return layer

    seen = []
    directory = scaled({(0, "k_scale"): torch.tensor([0.5, 0.25]), (0, "v_scale"): torch.tensor([2.0, 2.0])})
    with pytest.raises(CheckpointError, match="one number per layer") as caught:
        load(directory, kv_dtype="float8_e4m3fn", attention_backends=ByHead)
    assert caught.value.code == "CORE-M129"
    load(directory, kv_dtype="float8_e4m3fn", attention_backends=ByHead, features={"head_scales"})
    assert seen[0] == [[0.5, 0.25], 2.0] and seen[1] == [1.0, 1.0]


@pytest.mark.covers("QUANT-01")
def test_a_checkpoint_that_asks_for_a_float8_cache_gets_one_with_its_scales(scaled):
    from core import LLM, SamplingParams

    def answer(directory, **options):
        with LLM(str(directory), dtype="float32", threads=1, num_blocks=40, **options) as llm:
            found = llm.generate(
                [[5, 9, 14, 3, 77, 8]], SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
            )
            return llm.config.kv_dtype, found[0].outputs[0].token_ids

    names = [(layer, name) for layer in range(3) for name in ("k_scale", "v_scale")]
    directory = scaled({one: torch.tensor(0.01) for one in names})
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["re:.*"],
        "kv_cache_scheme": SCHEME,
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    asked, tokens = answer(directory, attention_backend="torch_sdpa")
    assert asked == "float8_e4m3fn"
    assert answer(directory, kv_dtype="float32", attention_backend="torch_sdpa")[0] == "float32"
    if library.available():
        assert answer(directory, attention_backend="cpu_native") == (asked, tokens)
