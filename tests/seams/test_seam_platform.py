"""A platform's facets: graphs around the forward pass, collectives, and what its probe says it can do."""

from __future__ import annotations

import torch

from core import LLM, SamplingParams
from core.api import CollectiveFacet, ProbeResult
from core.config.resolved import Options
from core.plugins.catalog import Catalogue

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
CPU = {"dtype": "float32", "num_blocks": 60}


def test_steps_run_through_the_platforms_graphs(plugins, llama, prompt, tmp_path):
    with LLM(llama, **CPU) as llm:
        plain = [output.outputs[0].token_ids for output in llm.generate([prompt(9), prompt(4, 1)], GREEDY)]
    plugins("platform")
    from safetensors.torch import load_file, save_file

    save_file(load_file(f"{llama}/model.safetensors"), tmp_path / "model.safetensors")
    with LLM(llama, **CPU, platform="graphbox", weight_transfer="disk") as llm:
        from seam_platform.platform import RECORD

        RECORD.clear()
        outputs = llm.generate([prompt(9), prompt(4, 1)], GREEDY)
        assert [output.outputs[0].token_ids for output in outputs] == plain
        assert RECORD.count(("capture", 2)) == 1
        assert RECORD.count(("replay", 2)) == 7  # prompts run without a graph, seven decode steps follow
        llm.call("update_weights", {"path": str(tmp_path / "model.safetensors"), "version": "again"})
        llm.generate([prompt(9), prompt(4, 1)], GREEDY)
        assert RECORD.count(("capture", 2)) == 2  # a graph of the old weights is not replayed


def test_the_worker_finds_the_facets_and_says_so(plugins, llama, monkeypatch):
    plugins("platform")
    from seam_platform.platform import GraphBox

    collectives: CollectiveFacet = GraphBox().collectives
    tensor = torch.arange(6.0).view(2, 3)
    assert collectives.world_size == 1
    assert torch.equal(collectives.all_reduce(tensor), tensor)
    assert torch.equal(collectives.all_gather(tensor, 0), tensor)
    with LLM(llama, **CPU, platform="graphbox") as llm:
        assert llm._engine.ready.facts["facets"] == "graphs, collectives"
    monkeypatch.setattr(GraphBox, "facets", False)
    with LLM(llama, **CPU, platform="graphbox") as llm:
        assert "facets" not in llm._engine.ready.facts


def test_capabilities_are_asked_by_name(plugins):
    plugins("platform")
    from seam_platform.probe import probe

    found = probe()
    assert found.has("fp8_e4m3") and found.has("sse")
    assert not found.has("amx") and not found.has("unheard_of")
    assert not ProbeResult(available=True, facts={"isa": "amx"}).has("isa")


def test_features_reach_the_plugins_that_configure(plugins, llama):
    from core.selection.resolver import Resolver

    plugins("platform")
    resolver = Resolver(Options.model_validate({"model": {"model": llama}, "select": {"platform": "graphbox"}}))
    seen = []
    resolver.hooks.configure = lambda config, facts: seen.append(facts) or []
    resolver.run()
    assert seen[0]["features"] == ["fp8_e4m3"]
    assert isinstance(resolver.catalogue, Catalogue)
