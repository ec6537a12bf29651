"""What configurations and checkpoints of DeepSeek's relatives ask for."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from core_plugin_decoder import MLP, Mixture
from core_plugin_deepseek.family import DeepSeek, read, shape
from safetensors.torch import load_file, save_file

from core.api import CheckpointError
from core.config.resolved import Options
from core.engine.client import open_sync
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.families import TinyFamily

SMALL = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
YARN = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}


def sparse(config):
    return [isinstance(layer.mlp, Mixture) for layer in read(config).layers]


def test_which_layers_have_experts():
    assert sparse(SMALL) == [False] * 3 + [True] * 3
    assert sparse({**SMALL, "first_k_dense_replace": 1, "moe_layer_freq": 2}) == [
        False,
        False,
        True,
        False,
        True,
        False,
    ]
    named = ["sparse", "dense"] * 3
    assert sparse({**SMALL, "architectures": ["Glm4MoeLiteForCausalLM"], "mlp_layer_types": named}) == [True, False] * 3
    with pytest.raises(CheckpointError, match="CORE-M126 'mlp_layer_types' must name 6 layers"):
        read({**SMALL, "mlp_layer_types": named[:5]})


def test_shared_experts_are_one_mlp():
    layer = read({**SMALL, "n_shared_experts": 3, "moe_intermediate_size": 20}).layers[-1].mlp
    assert layer.shared == MLP(size=60, name="shared_experts")
    assert read({**SMALL, "n_shared_experts": None}).layers[-1].mlp.shared is None


def test_a_stretched_context_changes_the_scale_of_the_scores():
    plain, stretched = (read(config).layers[0].attention for config in (SMALL, {**SMALL, "rope_scaling": YARN}))
    assert plain.scale == pytest.approx(192**-0.5)
    assert stretched.scale == pytest.approx(192**-0.5 * 1.3688879454113936**2)  # 0.1 ln 40 + 1
    assert stretched.rope.context == 40 * 4096


def test_what_nobody_computes_is_refused():
    for key, value in (("scoring_func", "softmax"), ("topk_method", "greedy")):
        with pytest.raises(CheckpointError, match=f"CORE-M126 '{key}' is '{value}'"):
            read({**SMALL, key: value})
    second = {**SMALL, "architectures": ["DeepseekV2ForCausalLM"], "num_experts_per_tok": 2}
    with pytest.raises(CheckpointError, match="CORE-M126 'norm_topk_prob' is True"):
        read({**second, "norm_topk_prob": True})


def test_the_shape_names_the_feature_and_the_sizes():
    found = shape(SMALL)
    assert found.latents == {(512, 64)}
    assert found.features == {"latent"}
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (4, 4, 192)
    sizes = {one.name: [size for _, size in one.dims] for one in found.weights}
    assert sizes["layers.{}.self_attn.kv_a_proj_with_mqa.weight"] == [576, 64]
    assert sizes["layers.{}.self_attn.kv_b_proj.weight"] == [4 * 256, 512]
    assert sizes["layers.{}.self_attn.q_b_proj.weight"] == [4 * 192, 1536]


def test_layers_that_predict_further_tokens_are_named_and_left_out():
    assert DeepSeek.weight_rules(SMALL).skip[-1:] == ("model.layers.6.*",)
    assert "model.layers.7.*" in DeepSeek.weight_rules({**SMALL, "num_nextn_predict_layers": 2}).skip
    second = {**SMALL, "architectures": ["DeepseekV2ForCausalLM"], "num_experts_per_tok": 2}
    assert not any("layers" in glob for glob in DeepSeek.weight_rules(second).skip)


@pytest.mark.covers("MODEL-04", "ATTN-08")
def test_a_checkpoint_with_further_layers_starts_and_its_cache_takes_what_the_formula_says(tmp_path):
    row = TinyFamily(
        "further",
        "DeepseekV3ForCausalLM",
        {
            "model_type": "deepseek_v3",
            "num_key_value_heads": 4,
            "kv_lora_rank": 24,
            "q_lora_rank": 28,
            "qk_nope_head_dim": 14,
            "qk_rope_head_dim": 12,
            "v_head_dim": 10,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 36,
            "first_k_dense_replace": 1,
            "n_group": 1,
            "topk_group": 1,
        },
    )
    directory = row.write(tmp_path / "model")
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.3.eh_proj.weight"] = torch.zeros(80, 160)
    tensors["model.layers.3.self_attn.q_a_proj.weight"] = torch.zeros(28, 80)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        options = Options(
            model=ModelOptions(model=str(directory), dtype=dtype, max_model_len=64),
            kv=KVOptions(kv_memory="1MiB", block_size=16),
            runtime=RuntimeOptions(threads=1),
        )
        with closing(open_sync(resolve(options).config)) as engine:
            layers, token = 3, (24 + 12) * size
            blocks = 2**20 // (layers * 16 * token)
            assert engine.ready.facts["attention"] == "cpu_native"
            assert engine.ready.facts["kv cache"] == (
                f"0.00 GiB, {blocks} blocks, {(blocks - 1) * 16} tokens (kv_memory 1MiB)"
            )
