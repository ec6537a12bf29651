"""The family of the models page, built and installed out of tree as the page says: its tokens are its reference's.

One file, one try: nothing is added to the page's two blocks.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core import LLM, SamplingParams
from core_testing.families import TinyFamily, logits_of

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
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    for file, start in (("acme_family.py", 'python\n("""Acme: '), ("pyproject.toml", r"toml\n(\[build-system\]")):
        block = re.search(rf"^```{start}.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        (source / file).write_text(block[1])
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", site, source], check=True, timeout=120, stdin=subprocess.DEVNULL)
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
