"""The family of the models page, written out of tree in one file: its tokens are those of its reference."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path

import pytest
import torch

from core import LLM, SamplingParams
from core.testing.families import TinyFamily, logits_of

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "kinds" / "models.md"
PROMPT = [3 + (i * 29) % 300 for i in range(23)]


def helium(values):
    import transformers

    config = transformers.HeliumConfig(**{key: value for key, value in values.items() if key != "architectures"})
    config._attn_implementation = "eager"
    return transformers.HeliumForCausalLM(config)


SIZES = {"rms_norm_eps": 1e-6, "hidden_size": 96, "head_dim": 24}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}
FAMILY = TinyFamily("acme", "AcmeForCausalLM", {**SIZES, **ROPE}, reference=helium)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    code = re.search(r'^```python\n("""Acme: .*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    site = tmp_path / "site"
    info = site / "acme_family-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "acme_family.py").write_text(code[1])
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-family\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[core.models]\nacme = acme_family:ACME\n")
    monkeypatch.syspath_prepend(str(site))
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *([before] if before else [])]))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("acme_family", None)
    importlib.invalidate_caches()


@pytest.mark.covers("MODEL-01")
def test_a_family_of_one_file_gives_the_tokens_of_its_reference(installed, tmp_path):
    model = FAMILY.model()
    directory = FAMILY.write(tmp_path / "model", model)
    with LLM(str(directory), dtype="float32", num_blocks=20, threads=1) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        (answer,) = llm.generate([{"prompt_token_ids": PROMPT}], params)
    tokens = answer.outputs[0].token_ids
    due = logits_of(model, PROMPT + tokens)[len(PROMPT) - 1 : -1].argmax(-1)
    assert torch.equal(due, torch.tensor(tokens))
