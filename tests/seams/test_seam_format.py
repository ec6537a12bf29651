"""A source and a loader outside core serve a format that nobody has ever heard of, end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core import LLM, SamplingParams
from core.api import CheckpointError

GREEDY = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)


@pytest.fixture
def vault(plugins, llama, tmp_path, monkeypatch):
    plugins("format")
    from safetensors.torch import load_file
    from seam_format.reader import write

    source = Path(llama)
    write(
        tmp_path / "tiny.vault",
        json.loads((source / "config.json").read_text()),
        (source / "tokenizer.json").read_text(),
        load_file(source / "model.safetensors"),
    )
    monkeypatch.setenv("CORE_PLUGIN_VAULT", str(tmp_path))
    return tmp_path


def test_a_made_up_format_is_served_end_to_end(vault, llama):
    text = "the engine reads"
    with LLM(llama, dtype="float32", num_blocks=60) as llm:
        plain = llm.generate(text, GREEDY)[0].outputs[0]
    with LLM("vault:tiny", dtype="float32", num_blocks=60) as llm:
        found = llm.generate(text, GREEDY)[0].outputs[0]
        assert llm.config.checkpoint.format == "vault" and llm.config.files.name == "tiny"
    assert (found.token_ids, found.text) == (plain.token_ids, plain.text)


def test_in_a_process_of_its_own(vault):
    with LLM("vault:tiny", dtype="float32", num_blocks=60, executor="subprocess") as llm:
        assert len(llm.generate("a worker", GREEDY)[0].outputs[0].token_ids) == 10


def test_who_claims_a_reference_answers_for_it(vault):
    with pytest.raises(CheckpointError, match="the vault has no model 'gold'"):
        LLM("vault:gold")
