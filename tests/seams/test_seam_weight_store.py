"""A weight store of somebody else: on another platform, behind wrapped layers, and when it fails."""

from __future__ import annotations

import importlib

import pytest

from core import LLM, SamplingParams
from core.layers import weights
from core.worker.loading import kept

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 60, "block_size": 8}
KEPT = {**OPTIONS, "weight_store": "cellar"}


@pytest.fixture
def run(llama, prompt, monkeypatch):
    """`run(options)` -> tokens of a prompt, and how many parts of layers were packed."""
    monkeypatch.setattr(kept, "DELAY_SECONDS", 0.0)
    packed, pack = [], weights.WeightFilling._pack
    monkeypatch.setattr(
        weights.WeightFilling, "_pack", lambda self, index: (packed.append(index), pack(self, index))[1]
    )

    def run(options):
        packed.clear()
        with LLM(llama, **options) as llm:
            return llm.generate([prompt(45)], GREEDY)[0].outputs[0].token_ids, len(packed)

    return run


def cellar():
    return importlib.import_module("seam_cellar.store")


@pytest.mark.parametrize("platform", ["cpu", "graphbox"])
def test_a_start_takes_what_another_one_left(plugins, run, platform):
    plugins("platform", "cellar")
    due, count = run({**OPTIONS, "platform": platform})
    assert run({**KEPT, "platform": platform}) == (due, count)
    assert run({**KEPT, "platform": platform}) == (due, 0)
    assert len(cellar().KEPT) == 1


def test_a_wrapped_model_has_its_own(plugins, run):
    """What wraps a product may pack in another way: the key has its class."""
    plugins("cellar")
    plain, count = run(KEPT)
    plugins("wrap")
    wrapped, packed = run(KEPT)
    assert wrapped != plain and packed == count and len(cellar().KEPT) == 2
    assert run(KEPT) == (wrapped, 0)


@pytest.mark.parametrize("moment", ["constructor", "open", "keep"])
def test_a_store_that_fails_is_named_and_not_missed(plugins, run, caplog, moment):
    plugins("cellar")
    due, count = run(OPTIONS)
    cellar().FAULTS.add(moment)
    assert run(KEPT) == (due, count)
    told = [record.message for record in caplog.records if "CORE-P161 weight store 'cellar'" in record.message]
    assert len(told) == 1 and "(seam-cellar 1.0)" in told[0] and f"{moment}: the cellar is under water" in told[0]
    assert not cellar().KEPT
