"""Every layer's router chooses the experts that the reference's does, and weighs them alike."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch

from core.api.sampling_params import SamplingParams
from core.config.resolved import Options
from core.engine.client import open_sync
from core.engine.messages import Add
from core.layers.experts import Router
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core.worker.graphs import GraphedForward
from core_testing.families import logits_of

PROMPT = [3 + (7 * index * index + 5 * index) % 370 for index in range(29)]
CLOSE = 1e-4
UNLIKE = {
    "qwen3_moe": "renormalised shares",
    "ernie_moe": "shares, corrected",
    "glm4_moe": "sigmoids, corrected, in groups",
    "gpt_oss": "a bias, and shares of the chosen alone",
    "longcat_flash": "shares of experts and of identities, corrected",
    "dbrx": "renormalised shares, of a router that only scores",
}


CHOOSE = "route_tokens_to_experts"


def seen(choose, found):
    """Return a function that keeps what `choose` returns, weights and ids."""

    def keeps(*given):
        found.append(choose(*given))
        return found[-1]

    return keeps


def of_reference(model):
    """Return weights and ids of each layer with experts, in order: routers return them behind their logits."""
    found = []

    def keep(module, inputs, outputs):
        found.append([one.flatten(0, -2) for one in outputs[1:]])

    routers = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
    routers += [module for module in model.modules() if type(module).__name__.endswith("TopkRouter")]
    hooks = [module.register_forward_hook(keep) for module in routers]
    # Routers that only score leave the choice to a method of what holds them.
    choosing = [] if routers else [module for module in model.modules() if hasattr(module, CHOOSE)]
    for module in choosing:
        setattr(module, CHOOSE, seen(getattr(module, CHOOSE), found))
    logits_of(model, PROMPT)
    for hook in hooks:
        hook.remove()
    assert len(found) == len(routers) + len(choosing) > 0
    return found


def of_core(directory, monkeypatch):
    found = []
    route = Router.__call__

    def kept(self, x):
        found.append(route(self, x))
        return found[-1]

    options = Options(
        model=ModelOptions(model=str(directory), dtype="float32", max_model_len=64),
        kv=KVOptions(num_blocks=20),
        runtime=RuntimeOptions(threads=1),
    )
    with closing(open_sync(resolve(options).config)) as engine:
        # A step that a graph replays calls no router.
        monkeypatch.setattr(GraphedForward, "__call__", lambda graphed, step: graphed._forward(step))
        monkeypatch.setattr(Router, "__call__", kept)
        params = SamplingParams(max_tokens=1, temperature=0.0)
        engine.send(Add(handle=0, prompt=np.array(PROMPT, "<i4").tobytes(), params=params, stop_ids=[]))
        while engine.step():
            pass
    return found


def by_expert(weights, ids):
    """Return each token's weights, with its experts in the order of their numbers."""
    order = ids.argsort(-1)
    return ids.gather(-1, order), weights.gather(-1, order)


@pytest.mark.covers("MOE-01", "MOE-05", "MODEL-05")
@pytest.mark.parametrize("name", UNLIKE)
def test_experts_and_weights_are_those_of_the_reference(name, families, tmp_path, monkeypatch):
    model = families[name].model()
    expected = of_reference(model)
    found = of_core(families[name].write(tmp_path / name, model), monkeypatch)
    assert len(found) == len(expected)
    for (weights, ids), (due_weights, due_ids) in zip(found, expected, strict=True):
        chosen, shares = by_expert(weights, ids.long())
        due_chosen, due_shares = by_expert(due_weights, due_ids)
        assert torch.equal(chosen, due_chosen)
        assert len(chosen.unique()) > chosen.shape[1]  # not the same experts for all tokens
        torch.testing.assert_close(shares, due_shares, atol=CLOSE, rtol=CLOSE)
