"""Scales of 8-bit KV caches, by every spelling: each attention layer of each family gets those of its module."""

from __future__ import annotations

import json
import re
from contextlib import closing

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from core.api.errors import CheckpointError
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.layers.attention import AttentionModule
from core.layers.latent import LatentModule
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve

SPELLINGS = [
    ("k_proj.k_scale", "v_proj.v_scale"),  # ModelOpt
    ("k_scale", "v_scale"),  # compressed-tensors
    ("k_proj.output_scale", "v_proj.output_scale"),  # Quark
    ("attn.k_scale", "attn.v_scale"),
    ("qkv_proj.k_scale", "qkv_proj.v_scale"),
    ("mla_attn.mla_attn.k_scale", "mla_attn.mla_attn.v_scale"),
    ("attn_mqa.k_scale", "attn_mqa.v_scale"),
    ("k_cache.scale", "v_cache.scale"),
    ("k_fake_quantizer.qscale_act", "v_fake_quantizer.qscale_act"),
    ("kv_scale",),
    ("query_key_value.output_scale",),
]
"""Names of the scales of keys and values below an attention module, or of the one of both."""

LATENT = "kv_a_proj_with_mqa"
KEYS = ("k_proj", "qkv_proj", "query_key_value", "key_value", "Wqkv", "wqkv", "c_attn", "W_pack", "in_proj", LATENT)
"""Modules of checkpoints that make keys."""

STATES = ("A_log", "q_conv1d", "output_gate", "conv", "conv1d", "in_proj_qkvz")
"""What is beside them in modules that keep states instead."""

AGAIN = {"dory": [1]}
"""Row -> the modules that run again in the same step, where these are not all."""

LARGE = 2.0**12
"""Makes any key or value too large for float8."""


def modules_of(names):
    """Return the paths of the modules that make keys and keep them, by layer."""
    found = [re.fullmatch(rf"(.+)\.(?:{'|'.join(KEYS)})\.weight", name) for name in names]
    paths = dict.fromkeys(one[1] for one in found if one)
    keep = [path for path in paths if not any(name.startswith(f"{path}.{one}") for name in names for one in STATES)]
    return sorted(keep, key=lambda path: [int(part) for part in re.findall(r"\d+", path)])


@pytest.fixture
def with_more(tmp_path):
    """Return a function that writes a checkpoint anew, its tensors changed by a function."""

    def make(directory, change):
        target = tmp_path / f"changed-{len(list(tmp_path.iterdir()))}"
        target.mkdir()
        for file in directory.iterdir():
            if file.suffix == ".json":
                (target / file.name).write_bytes(file.read_bytes())
        values = load_file(directory / "model.safetensors")
        change(values)
        save_file(values, target / "model.safetensors", metadata={"format": "pt"})
        return target

    return make


def opened(directory, impl=None, backend="torch_sdpa", kv_dtype="float8_e4m3fn"):
    options = Options(
        model=ModelOptions(model=str(directory), dtype="float32", max_model_len=64),
        kv=KVOptions(num_blocks=60, block_size=16, kv_dtype=kv_dtype),
        runtime=RuntimeOptions(threads=1),
        select=SelectOptions(attention_backend=backend, model_impl=impl),
    )
    return closing(open_sync(resolve(options).config))


def given(engine):
    """Return the scales of all layers that keep keys and values, or latents, by layer."""
    attentions = engine._core.executor._worker._loaded.attentions  # of an engine in this process
    layers = [layer for layer in attentions if isinstance(layer, (AttentionModule, LatentModule))]
    return [tuple(float(one) for one in layer.params.values()) for layer in layers]


def answer(engine):
    """Return greedy tokens, as bytes."""
    prompt = np.random.default_rng(5).integers(3, 300, 40)
    params = SamplingParams(max_tokens=12, temperature=0.0)
    engine.send(Add(handle=0, prompt=prompt.astype("<i4").tobytes(), params=params, stop_ids=[]))
    return b"".join(outputs.tokens for found in iter(engine.step, []) for outputs in found)


@pytest.mark.covers("QUANT-08", "ATTN-08")
@pytest.mark.each_architecture
def test_each_layer_has_the_scales_of_its_module(made, families, with_more):
    first, scales = list(families).index(made.row.name), {}

    def change(values):
        for path in modules_of(values):
            keys = next(values[f"{path}.{one}.weight"] for one in KEYS if f"{path}.{one}.weight" in values)
            known = keys.numpy().tobytes()  # a module that is stored several times is one
            number = list(scales).index(known) if known in scales else len(scales)
            spelled = SPELLINGS[(first + number) % len(SPELLINGS)]
            pair = (1 + number / 8, 0.5 - number / 64)[: len(spelled)]
            values.update((f"{path}.{name}", torch.tensor(one)) for name, one in zip(spelled, pair, strict=True))
            scales[known] = (pair[0], pair[0] if f"{path}.{LATENT}.weight" in values else pair[-1])

    with opened(with_more(made.directory, change), made.row.model_impl) as engine:
        found, due = given(engine), list(scales.values())
        assert (not found) is (not due)
        # Modules that run again have their scales each time; those behind the last one found read what others keep.
        again = AGAIN.get(made.row.name, range(len(due)))
        assert found == [*due, *([due[one] for one in again] * len(found))][: len(found)]


def enlarge(values):
    """Make keys and values of every layer too large for float8, and what they meet as much smaller: equal results."""

    def times(name, factor, rows=slice(None)):
        for kind in ("weight", "bias"):
            if f"{name}.{kind}" in values:
                values[f"{name}.{kind}"][rows] *= factor

    for path in modules_of(values):
        if f"{path}.{LATENT}.weight" not in values:
            for name, factor in (("k_proj", LARGE), ("v_proj", LARGE), ("q_proj", 1 / LARGE), ("o_proj", 1 / LARGE)):
                times(f"{path}.{name}", factor)
            continue
        size = len(values[f"{path}.kv_a_layernorm.weight"])
        times(f"{path}.{LATENT}", LARGE, slice(size, None))
        times(f"{path}.kv_a_layernorm", LARGE)
        times(f"{path}.kv_b_proj", 1 / LARGE)
        turned = len(values[f"{path}.{LATENT}.weight"]) - size
        queries = f"{path}.q_b_proj" if f"{path}.q_b_proj.weight" in values else f"{path}.q_proj"
        per_head = len(values[f"{queries}.weight"]) // HEADS
        rows = torch.arange(HEADS * per_head).view(HEADS, per_head)[:, per_head - turned :].flatten()
        times(queries, 1 / LARGE, rows)


HEADS = 4


def named(values, names, scale=LARGE):
    """Add scales by these names to every layer."""
    values.update((f"{path}.{name}", torch.tensor([scale])) for path in modules_of(values) for name in names)


NATIVE = ["YiForCausalLM", "falcon_h1", "granite_hybrid", "deepseek_v3"]


@pytest.mark.covers("QUANT-08", "ATTN-08")
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "cpu_native") for name in NATIVE),
        *((name, "torch_sdpa") for name in [*NATIVE, "ouro", "kimi_linear", "longcat_flash", "nemotron_h"]),
    ],
)
def test_scaled_caches_have_the_tokens_of_values_in_range(families, with_more, tmp_path, name, backend):
    """Powers of two: not a bit differs from caches without scales, of values that need none."""
    row = families[name]
    directory = row.write(tmp_path / "plain", **(row.native if backend == "cpu_native" else {}))
    with opened(directory, backend=backend) as engine:
        due, program = answer(engine), engine.ready.facts["program"]
    enlarged = with_more(directory, enlarge)
    with opened(enlarged, backend=backend) as engine:
        assert answer(engine) != due
    with opened(with_more(enlarged, lambda values: named(values, SPELLINGS[0])), backend=backend) as engine:
        assert set(given(engine)) == {(LARGE, LARGE)}
        assert answer(engine) == due
        assert re.sub(r"\d+", "", engine.ready.facts["program"]) == re.sub(r"\d+", "", program)
    with opened(
        with_more(enlarged, lambda values: named(values, SPELLINGS[0])), backend=backend, kv_dtype="float32"
    ) as engine:
        assert set(given(engine)) == {(1.0, 1.0)}


@pytest.mark.covers("QUANT-08")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.layers.0.self_attn.k_proj.k_scale", "'model.layers.0.self_attn.k_proj.k_scale' holds 0"),
        ("model.layers.2.self_attn.v_proj.v_scale", "'model.layers.2.self_attn.v_proj.v_scale' holds nan"),
        (
            "model.layers.3.self_attn.k_scale",
            "no place for 1 tensor of the checkpoint: model.layers.3.self_attn.",
        ),
        ("model.layers.0.mamba.k_proj.k_scale", "no place for 1 tensor of the checkpoint: model.layers.0.mamba.k_proj"),
    ],
)
def test_a_wrong_scale_is_one_line_with_file_and_tensor(families, with_more, tmp_path, name, text):
    broken = torch.tensor(float("nan") if "v_scale" in name else 0.0)
    directory = with_more(families["falcon_h1"].write(tmp_path / "plain"), lambda values: values.update({name: broken}))
    with pytest.raises(CheckpointError, match=re.escape(text)) as caught, opened(directory):
        pass
    assert str(directory) in caught.value.message and "\n" not in caught.value.message


def quantized(directory):
    """Say that the linears are in float8, each with one scale, and that the cache is to be, too."""
    weights = {"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": True, "dynamic": False}
    file = directory / "config.json"
    config = json.loads(file.read_text()) | {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "float-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": ["lm_head"],
            "kv_cache_scheme": weights,
        }
    }
    file.write_text(json.dumps(config))
    return directory


@pytest.mark.covers("QUANT-08")
def test_a_quantized_hybrid_has_the_tokens_of_its_opened_twin(families, with_more, tmp_path):
    linears = re.compile(r".*\.(self_attn|mamba|feed_forward)\.\w+_proj\.weight")
    scales = [name for pair in SPELLINGS[:1] for name in pair]

    def twin(values):
        for name in filter(linears.fullmatch, list(values)):
            values[name] = values[name].to(torch.float8_e4m3fn).float() / 4
        named(values, scales, 2.0**-7)

    def stored(values):
        for name in filter(linears.fullmatch, list(values)):
            values[name] = values[name].to(torch.float8_e4m3fn)
            values[f"{name}_scale"] = torch.tensor([0.25])
        named(values, scales, 2.0**-7)

    plain = families["falcon_h1"].write(tmp_path / "plain")
    with opened(with_more(plain, twin)) as engine:
        due = answer(engine)
    with opened(quantized(with_more(plain, stored)), kv_dtype="auto") as engine:
        assert set(given(engine)) == {(2.0**-7, 2.0**-7)}
        assert answer(engine) == due
