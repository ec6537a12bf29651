"""KV specs reach their managers, windowed models give blocks back early, and layers act after loading."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core.api import KVSpec, PluginError
from core.engine.managers import managers_for

LONG = SamplingParams(temperature=0.0, max_tokens=120, ignore_eos=True)
OPTIONS = {"dtype": "float32", "block_size": 4, "num_blocks": 200, "max_model_len": 192}


def _run(model, prompts, **options):
    with LLM(model, **{**OPTIONS, **options}) as llm:
        outputs = llm.generate(prompts, LONG)
        llm.call("check")
        return [output.outputs[0].token_ids for output in outputs], llm.call("stats")


@pytest.mark.parametrize("caching", [True, False])
def test_a_windowed_model_gives_blocks_back_while_it_runs(windowed, prompt, monkeypatch, caching):
    prompts = [prompt(30, 1), prompt(50, 2), prompt(30, 1)]
    freed, early = _run(windowed, prompts, prefix_caching=caching)
    monkeypatch.setattr("core.engine.core.planned_managers", lambda *_: managers_for([KVSpec()], OPTIONS["block_size"]))
    kept, late = _run(windowed, prompts, prefix_caching=caching)
    assert freed == kept
    assert late["blocks_freed_early"] == 0
    # Each row ends with 150 tokens and more, of which a window of 5 needs two blocks of four.
    assert early["blocks_freed_early"] >= 3 * (150 // 4 - 4)


def test_freed_blocks_make_room_for_others(windowed, prompt):
    prompts = [prompt(8, seed) for seed in range(6)]
    tokens, stats = _run(windowed, prompts, num_blocks=48, max_model_len=150)
    alone, _ = _run(windowed, prompts, max_num_seqs=1)
    # Six rows of 128 tokens would need 192 blocks of four; there are 47.
    assert tokens == alone and stats["preemptions"] == 0


def test_a_model_with_full_attention_keeps_its_blocks(llama, prompt):
    _, stats = _run(llama, [prompt(30)])
    assert stats["blocks_freed_early"] == 0


def test_a_backend_brings_its_own_kind_and_its_manager(plugins, windowed, prompt):
    plugins("attention")
    prompts = [prompt(30, 1), prompt(50, 2)]
    plain, reference = _run(windowed, prompts)
    tokens, stats = _run(windowed, prompts, attention_backend="traced")
    from seam_attention.backend import LOADED

    assert tokens == plain
    assert LOADED == [0, 1, 2]
    # Its manager keeps a block more per row than core's.
    assert 0 < stats["blocks_freed_early"] < reference["blocks_freed_early"]


def test_layers_act_again_after_an_update_of_the_weights(plugins, windowed, tmp_path):
    plugins("attention")
    from safetensors.torch import load_file, save_file

    state = {name: tensor * 0.5 for name, tensor in load_file(f"{windowed}/model.safetensors").items()}
    save_file(state, tmp_path / "model.safetensors")
    with LLM(windowed, **OPTIONS, attention_backend="traced", weight_transfer="disk") as llm:
        llm.call("update_weights", {"path": str(tmp_path / "model.safetensors"), "version": "half"})
    from seam_attention.backend import LOADED

    assert LOADED == [0, 1, 2] * 2


def test_each_cache_group_keeps_what_its_layers_read():
    groups = [KVSpec("sliding", 32), KVSpec(), KVSpec("chunked", 24), KVSpec("sliding", 32)]
    managers = managers_for(groups, 4)
    # Behind 0, 10 and 25 blocks of four tokens: windows begin at 9 and 69, chunks at 24 and 96.
    assert managers.dead_columns(25)[:, [0, 10, 25]].tolist() == [[0, 2, 17], [0, 0, 0], [0, 6, 24], [0, 2, 17]]
    assert [groups.tolist() for _, groups in managers.freeing] == [[0, 3], [2]]
    assert not managers_for([KVSpec()], 4).frees


def test_a_kind_that_nobody_manages_stops_the_start():
    with pytest.raises(PluginError, match=r"CORE-P109 .*'strange'.*full, sliding"):
        managers_for([KVSpec("strange")], 4)
