"""Models that pick the positions they see: their configurations, their picks, their caches, and ranks of them."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_deepseek.family import DeepSeek, read, shape
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
from safetensors.torch import load_file, save_file

from core.api import CheckpointError
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.conformance.tools import decoder as decoder_module
from core_testing.conformance.tools import tiny_cases
from core_testing.conformance.tools.decoder import BLOCK_SIZE, Decoder, Track
from core_testing.conformance.tools.tiny_cases import TinyCase
from core_testing.families import TinyFamily, logits_of
from core_testing.ranks import run_ranks

SMALL = {
    "architectures": ["DeepseekV32ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
FIFTH = {**SMALL, "architectures": ["GlmMoeDsaForCausalLM"]}
ROW = TinyFamily(
    "picks",
    "GlmMoeDsaForCausalLM",
    {
        "model_type": "glm_moe_dsa",
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
        "index_topk": 8,
        "index_n_heads": 18,
        "index_head_dim": 20,
        "indexer_types": ["full", "full", "shared"],
    },
)
SUBJECT = SimpleNamespace(impl=lambda: DeepSeek, device="cpu")
PROMPT = [(7 * index * index + 3 * index + 11) % 300 for index in range(67)]


def kinds(**config):
    return ["own" if layer.attention.index else "shared" for layer in read({**FIFTH, **config}).layers]


def test_defaults_are_those_of_the_makers():
    attention = read(SMALL).layers[0].attention
    index = attention.index
    assert (attention.picks, index.heads, index.key_dim) == (2048, 64, 128)
    assert (attention.rope.interleaved, index.rope.interleaved) == (True, False)
    assert (index.rope.head_dim, index.rope.rotary_dim) == (128, 64)
    fifth = read(FIFTH).layers[0].attention
    assert (fifth.index.heads, fifth.query_dim, fifth.key_dim, fifth.value_dim) == (32, 2048, 192, 256)
    assert fifth.index.rope.interleaved
    assert not read({**FIFTH, "indexer_rope_interleave": False}).layers[0].attention.index.rope.interleaved


def test_which_layers_pick_for_themselves():
    assert kinds() == ["own"] * 6
    assert kinds(index_topk_freq=2) == ["own", "own", "shared", "own", "shared", "own"]
    assert kinds(index_topk_freq=4, index_skip_topk_offset=1) == ["own", *["shared"] * 3, "own", "shared"]
    assert kinds(index_topk_pattern="FSSFSS") == ["own", "shared", "shared"] * 2
    assert kinds(indexer_types=["full", "shared"] * 3, index_topk_freq=1) == ["own", "shared"] * 3
    assert all(layer.attention.picks == 2048 for layer in read({**FIFTH, "index_topk_freq": 2}).layers)


def test_the_schedule_is_that_of_transformers():
    from transformers import GlmMoeDsaConfig

    for config in ({}, {"index_topk_freq": 3}, {"index_topk_freq": 2, "index_skip_topk_offset": 3}):
        due = GlmMoeDsaConfig(num_hidden_layers=6, **config).indexer_types
        assert kinds(**config) == ["own" if kind == "full" else "shared" for kind in due]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"indexer_types": ["full"] * 5}, "'indexer_types' must name 6 layers"),
        ({"indexer_types": ["shared"] + ["full"] * 5}, "the first of them as full"),
        ({"index_topk_pattern": "FFXFFF"}, "as full or shared"),
        ({"index_head_dim": 32}, "'index_head_dim' is 32, less than the 64 rotated"),
        ({"q_lora_rank": None}, "'q_lora_rank' is null"),
        ({"index_topk": 0}, "index_topk"),
    ],
)
def test_what_nobody_computes_is_refused(config, told):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{told}"):
        read({**FIFTH, **config})


def test_the_shape_names_the_features_the_sizes_and_both_rotations():
    found = shape({**FIFTH, "index_topk_freq": 2})
    assert found.features == {"latent", "picks"}
    assert len(shape(SMALL).ropes) == 2
    sizes = {one.name: [size for _, size in one.dims] for one in found.weights}
    assert sizes["layers.0.self_attn.indexer.wq_b.weight"] == [32 * 128, 2048]
    assert sizes["layers.3.self_attn.indexer.wk.weight"] == [128, 64]
    assert sizes["layers.1.self_attn.indexer.weights_proj.weight"] == [32, 64]
    assert "layers.2.self_attn.indexer.wk.weight" not in sizes


def spying(backend):
    """Return a class of such a backend that remembers what its pickers picked."""

    class Spy(backend):
        encoders = ()

        def picker(self, site):
            made, found = super().picker(site), self.__dict__.setdefault("found", {})
            forward = made.forward

            def told(*given):
                picked = forward(*given)
                found.setdefault(site.layer, []).append(picked)
                return picked

            made.forward = told
            return made

    return Spy


@pytest.mark.covers("MODEL-04", "ATTN-10")
@pytest.mark.parametrize("backend", [TorchSdpaBackend, NativeAttentionBackend])
def test_eight_of_sixty_seven_positions_are_those_of_the_reference(monkeypatch, backend):
    """Whole, and in pieces; a layer that shares has none of its own."""
    monkeypatch.setattr(tiny_cases, "PlainAttention", spying(backend))
    for module in (tiny_cases, decoder_module):
        monkeypatch.setattr(module, "BLOCK_SIZE", 16)
    reference, due = ROW.model(), []
    for layer in reference.model.layers[:2]:
        layer.self_attn.indexer.register_forward_hook(lambda module, given, found: due.append(found[0]))
    logits = logits_of(reference, PROMPT)
    for pieces in ((67,), (20, 7, 1, 38, 1)):
        decoder, track, out, begin = Decoder(SUBJECT, TinyCase(ROW.name, ROW.architecture, reference)), Track(), [], 0
        for count in pieces:
            out += decoder.run([(track, PROMPT[begin : begin + count])])
            begin += count
        torch.testing.assert_close(torch.cat(out), logits, atol=1e-3, rtol=1e-3)
        assert sorted(decoder.backend.found) == [3, 4]
        for picked, expected in zip(decoder.backend.found.values(), due, strict=True):
            for position, (mine, theirs) in enumerate(zip(torch.cat(picked).tolist(), expected.tolist(), strict=True)):
                # Where fewer are there the reference names hidden ones too, which its mask hides.
                assert set(mine) - {-1} == {one for one in theirs if one <= position}


def test_ranks_have_all_of_the_index_and_some_of_the_heads():
    case = TinyCase(ROW.name, ROW.architecture, ROW.model())

    def logits(decoder):
        track = Track()
        return torch.cat([decoder.run([(track, part)])[0] for part in (PROMPT[:19], PROMPT[19:])])

    def rank(ranks, all_reduce):
        decoder = Decoder(SUBJECT, case, ranks=ranks, all_reduce=all_reduce)
        shapes = [(tuple(module.kv.shape[1:]), module.site.num_heads) for module in decoder.attentions]
        return logits(decoder), set(shapes)

    due = logits(Decoder(SUBJECT, case))
    found = run_ranks(2, rank)
    torch.testing.assert_close(torch.cat([part for part, _ in found], dim=-1), due, atol=1e-3, rtol=1e-3)
    for _, shapes in found:
        assert shapes == {((BLOCK_SIZE, 24 + 12), 2), ((BLOCK_SIZE, 20), 18)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A checkpoint whose further layer predicts further tokens, and its reference."""
    model = ROW.model()
    directory = ROW.write(tmp_path_factory.mktemp("picks") / "model", model)
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.3.eh_proj.weight"] = torch.zeros(80, 160)
    tensors["model.layers.3.self_attn.indexer.wk.weight"] = torch.zeros(20, 80)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory, model


def opened(directory, dtype="float32", *, select=None, cache=None, step=None, **kv):
    options = Options(
        model=ModelOptions(model=str(directory), dtype=dtype, max_model_len=96),
        kv=KVOptions(block_size=16, **kv, **({} if cache is None else {"kv_dtype": cache})),
        runtime=RuntimeOptions(threads=1),
        scheduler=SchedulerOptions(max_num_batched_tokens=step),
        select=SelectOptions(**(select or {})),
    )
    return closing(open_sync(resolve(options).config))


@pytest.mark.covers("MODEL-04", "ATTN-10")
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_the_start_table_counts_latents_and_index_keys(written, dtype, size):
    with opened(written[0], dtype, kv_memory="1MiB") as engine:
        layers, token = 3, (24 + 12) * size
        blocks = 2**20 // (16 * (layers * token + 2 * 20 * size))
        assert engine.ready.facts["attention"] in ("cpu_native", "torch_sdpa")
        assert engine.ready.facts["kv cache"].startswith(f"0.00 GiB, {blocks} blocks, {(blocks - 1) * 16} tokens")


def answer(engine, prompt, new):
    params = SamplingParams(max_tokens=new, temperature=0.0)
    engine.send(Add(handle=0, prompt=np.array(prompt, "<i4").tobytes(), params=params, stop_ids=[]))
    tokens = []
    while found := engine.step():
        for outputs in found:
            tokens += np.frombuffer(outputs.tokens, "<i4").tolist()
    engine._core.scheduler.check()
    return tokens


def due_of(model, new=6):
    tokens = list(PROMPT)
    for _ in range(new):
        tokens.append(int(logits_of(model, tokens)[-1].argmax()))
    return tokens[len(PROMPT) :]


@pytest.mark.covers("MODEL-04", "ATTN-10")
@pytest.mark.parametrize(("backend", "step"), [("torch_sdpa", 1024), ("cpu_native", 1024), ("cpu_native", 24)])
def test_tokens_are_those_of_the_reference_by_every_backend(written, backend, step):
    """In one step and in pieces; native calls are replayed, also those of rows that are no longer than the picks."""
    directory, model = written
    with opened(directory, num_blocks=14, select={"attention_backend": backend}, step=step) as engine:
        assert engine.ready.facts["attention"] == backend
        assert ("calls" in engine.ready.facts["program"]) is (backend == "cpu_native")
        assert answer(engine, PROMPT[:5], 1) == [int(logits_of(model, PROMPT[:5])[-1].argmax())]
        assert answer(engine, PROMPT, 6) == due_of(model)


@pytest.mark.covers("MODEL-04")
def test_a_store_supplies_index_keys_with_the_latents(written):
    directory, model = written
    due = due_of(model)
    with opened(directory, num_blocks=14, select={"kv_connector": ["cpu_offload"]}) as engine:
        assert answer(engine, PROMPT, 6) == due
        engine._core.pool.forget_all()
        assert answer(engine, PROMPT, 6) == due
        assert engine._core.stages.stats()["cpu_offload"]["loaded"] > 0
        assert answer(engine, PROMPT, 6) == due  # and from the prefix cache


@pytest.mark.parametrize("cache", ["int8", "float8_e4m3fn"])
def test_narrow_caches_serve(written, cache):
    with opened(written[0], num_blocks=14, cache=cache) as engine:
        assert len(answer(engine, PROMPT, 6)) == 6
