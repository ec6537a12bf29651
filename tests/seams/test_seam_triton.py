"""Attention in Triton, by its interpreter, gives the tokens of the reference backend: engines on a fake device."""

from __future__ import annotations

from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from core import LLM, SamplingParams

pytest.importorskip("triton")

REPEATED = [5, 9, 14, 3, 77, 8] * 4
ENGINE = {
    "dtype": "float32",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 24,
    "max_model_len": 64,
    "block_size": 16,
    "num_blocks": 32,
}


def answers(model, prompts, *, tokens=8, **options):
    """Return tokens and scores of all prompts at once, then of the first two again; the figures; and the platform."""
    greedy = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, logprobs=1)
    with LLM(model, **{**ENGINE, **options}) as llm:
        found = [*llm.generate(prompts, greedy), *llm.generate(prompts[:2], greedy)]
        scores = [one.logprob for out in found for step in out.outputs[0].logprobs for one in step.values()]
        worker = llm._engine._core.loop.executor._worker
        return [out.outputs[0].token_ids for out in found], scores, llm.call("stats"), worker._platform


@pytest.fixture(scope="module")
def prompts():
    return [{"prompt_token_ids": REPEATED[number : number + length]} for number, length in enumerate((24, 20, 3, 17))]


@pytest.fixture(scope="module")
def due(llama, prompts):
    return answers(llama, prompts, platform="cpu", attention_backend="torch_sdpa")


def same(found, due):
    assert found[0] == due[0]
    np.testing.assert_allclose(found[1], due[1], atol=1e-4)


@pytest.mark.covers("ATTN-05")
def test_chunks_prefixes_and_graphs_give_the_tokens_of_the_reference(plugins, llama, prompts, due):
    """Prompts in pieces of a step's 24 tokens, prefixes from the cache, decoding by captured graphs, a step ahead."""
    plugins("fake_device", "triton_interpreted")
    found = answers(llama, prompts, platform="fake", attention_backend="triton_interpreted")
    same(found, due)
    _, _, stats, platform = found
    assert stats["prefix_hits"] > 0 and platform.graphs.replayed and platform.queue().waits == 0


@pytest.mark.exhaustive
@pytest.mark.covers("ATTN-05", "COMP-03")
@pytest.mark.parametrize("depth", range(3))
def test_prompts_by_captured_graphs_give_the_same(plugins, llama, prompts, due, depth):
    plugins("fake_device", "triton_interpreted")
    options = {"attention_backend": "triton_interpreted", "graphs": "full", "overlap_depth": depth}
    found = answers(llama, prompts, platform="fake", **options)
    same(found, due)
    _, _, stats, platform = found
    assert stats["prefix_hits"] > 0 and platform.queue().waits == 0
    assert 24 in platform.graphs.replayed and len(platform.graphs.replayed) == stats["steps"]


@pytest.mark.covers("ATTN-05")
def test_preempted_rows_without_graphs_give_the_same(plugins, llama, prompts):
    plugins("fake_device", "triton_interpreted")
    short = [{"prompt_token_ids": one["prompt_token_ids"][:count]} for one, count in zip(prompts, (12, 14, 3, 13))]
    options = {"num_blocks": 6, "overlap_depth": 0}
    due = answers(llama, short, platform="cpu", attention_backend="torch_sdpa", **options)
    found = answers(llama, short, platform="fake", attention_backend="triton_eager", **options)
    same(found, due)
    assert found[2]["preemptions"] > 0 and not found[3].graphs.captured


@pytest.mark.covers("ATTN-05")
def test_queries_and_keys_are_rotated_by_the_launch_that_stores(plugins, llama, prompts, due, monkeypatch):
    """No launch of its own is left; where the user names what rotates, it does."""
    plugins("fake_device", "triton_interpreted")
    from core_plugin_kernels_triton.attention.backend import TritonLayer

    from core.layers.rope import RotaryEmbedding

    counts = Counter()
    for owner, name in ((RotaryEmbedding, "__call__"), (TritonLayer, "write_rotated"), (TritonLayer, "write_kv")):
        counted(monkeypatch, counts, owner, name)
    chosen = {"platform": "fake", "attention_backend": "triton_interpreted", "tokens": 2}
    found = answers(llama, prompts[:2], **chosen)
    assert [one[:2] for one in due[0][:2]] == found[0][:2] and counts.keys() == {"write_rotated"}
    counts.clear()
    assert answers(llama, prompts[:2], **chosen, kernel=["rotary=reference"])[0] == found[0]
    assert counts.keys() == {"__call__", "write_kv"} and counts["__call__"] == counts["write_kv"]


def counted(monkeypatch, counts, owner, name):
    """Have calls of a method counted."""
    own = getattr(owner, name)

    def call(*given, **named):
        counts[name] += 1
        return own(*given, **named)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.covers("ATTN-05")
def test_a_common_prefix_is_read_once_by_captured_graphs_too(plugins, llama, monkeypatch):
    """Rows that decode behind the same 32 tokens, two splits of 16, give the tokens of the reference."""
    plugins("fake_device", "triton_interpreted")
    from core_plugin_kernels_triton.attention import few, tiles

    table = {**tiles.sizes("attention", ("default", "interpreter")), "splits": 4}
    table |= {f"few_{size}": {"n": 16, "split": 16, "warps": 1, "stages": 1} for size in (256, 512, 1024)}
    monkeypatch.setattr(tiles, "tiles", lambda device: table)
    counts = Counter()
    counted(monkeypatch, counts, few, "attend_keys")
    found, programs = {}, {}
    for name, joint in (("apart", 1), ("together", 16)):
        table["joint"] = joint
        found[name], platform = decoded(llama, platform="fake", attention_backend="triton_interpreted")
        assert platform.graphs.replayed and platform.queue().waits == 0
        programs[name] = counts.pop("attend_keys")
    due, _ = decoded(llama, platform="cpu", attention_backend="torch_sdpa")
    assert found["together"] == found["apart"] == due
    assert programs["together"] < 0.8 * programs["apart"]


def decoded(model, **options):
    """Return what three prompts of 32 common tokens go on with, once these are in the cache, and the platform."""
    greedy = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    common = (REPEATED * 2)[:32]
    with LLM(model, **{**ENGINE, **options}) as llm:
        llm.generate([{"prompt_token_ids": [*common, 7]}], SamplingParams(temperature=0.0, max_tokens=1))
        found = llm.generate([{"prompt_token_ids": [*common, last]} for last in (7, 8, 3)], greedy)
        worker = llm._engine._core.loop.executor._worker
        return [out.outputs[0].token_ids for out in found], worker._platform


def row_of(family, name):
    """Return a tiny checkpoint of a family's plugin."""
    path = Path(__file__).parents[2] / "plugins" / "models" / family / "tests" / "rows.py"
    spec = spec_from_file_location("rows_of_a_family", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(row for row in module.ROWS if row.name == name)


FAMILIES = {"gemma2": "gemma", "gpt_oss": "gpt_oss", "llama4": "llama4", "mpt": "mpt"}
"""Row -> its plugin: windows and caps, windows and sinks, chunks, slopes."""


# Without graphs where there are experts: core's own form of their products waits for the device.
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "triton_eager") for name in FAMILIES),
        *((name, "triton_interpreted") for name in ("gemma2", "mpt")),
    ],
)
def test_families_with_windows_caps_sinks_chunks_and_slopes(plugins, tmp_path, prompts, name, backend):
    plugins("fake_device", "triton_interpreted")
    model = str(row_of(FAMILIES[name], name).write(tmp_path / name))
    due = answers(model, prompts, platform="cpu", attention_backend="torch_sdpa")
    same(answers(model, prompts, platform="fake", attention_backend=backend), due)


@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize(
    ("family", "name"), [pytest.param("gemma", "gemma2", marks=pytest.mark.exhaustive), ("minicpm", "minicpm3")]
)
def test_prompts_by_captured_graphs_of_two_groups_and_of_latents(plugins, tmp_path, prompts, family, name):
    plugins("fake_device", "triton_interpreted")
    model = str(row_of(family, name).write(tmp_path / name))
    due = answers(model, prompts, tokens=4, platform="cpu", attention_backend="torch_sdpa")
    options = {"attention_backend": "triton_interpreted", "graphs": "full"}
    found = answers(model, prompts, tokens=4, platform="fake", **options)
    same(found, due)
    assert 24 in found[3].graphs.replayed and len(found[3].graphs.replayed) == found[2]["steps"]
