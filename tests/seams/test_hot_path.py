"""While tokens are made, nothing is looked up by name and no hook is called."""

from __future__ import annotations

from collections import Counter

from core import LLM, SamplingParams
from core.plugins.active import ActivePlugins
from core.plugins.catalog import Catalogue
from core.plugins.hooks import Hooks

STEPS = 100


def test_a_hundred_decode_steps_ask_no_catalogue_and_no_hook(plugins, llama, prompt, monkeypatch):
    plugins("hooks", "logits", "policy")
    options = {"dtype": "float32", "num_blocks": 60, "logits_processor": ["ban"], "scheduling_policy": "gentle"}
    asked: Counter[str] = Counter()

    def counted(owner, name):
        original = getattr(owner, name)

        def call(*arguments, **named):
            asked[f"{owner.__name__}.{name}"] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, call)

    for owner, names in (
        (Catalogue, ("scan", "find", "entries", "exact")),
        (Hooks, ("_call", "_ask", "_implementers", "engine_event", "layer", "has")),
        (ActivePlugins, ("spec", "specs", "impl", "impls", "load", "options")),
    ):
        for name in names:
            counted(owner, name)
    with LLM(llama, **options) as llm:
        assert asked["Catalogue.entries"] and asked["Hooks._call"] and asked["ActivePlugins.impl"]
        tokens = SamplingParams(temperature=0.7, seed=1, max_tokens=STEPS + 1, ignore_eos=True)
        llm.generate([prompt(9)], tokens)  # once before counting: the request itself asks core_request
        before, steps = asked["Hooks._call"], llm.call("stats")["steps"]
        asked.clear()
        llm.generate([prompt(9)], tokens)
        assert llm.call("stats")["steps"] - steps >= STEPS
    during = dict(asked)
    assert before > 0
    # One request asks its one hook once; then a hundred steps ask nothing.
    assert during.pop("Hooks._implementers") == 1 + 1  # core_request, and the engine's stop
    assert during.pop("Hooks._call") == 1 + 1
    assert during == {"Hooks.engine_event": 1}
