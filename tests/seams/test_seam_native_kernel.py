"""A kernel of a stranger's native library is recorded in the CPU's programs like the platform's own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from core_plugin_cpu.native import library

from core import LLM, SamplingParams

PLUGINS = Path(__file__).parent / "plugins"
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 60, "threads": 1}
LAYERS = 3

pytestmark = [
    pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the example is compiled with g++"),
]


@pytest.fixture
def built(plugins, tmp_path, monkeypatch):
    """Compile the plugin's library and install the plugin."""
    source, file = PLUGINS / "native_kernel/src/seam_native/silu.cpp", tmp_path / "libseam.so"
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-o", str(file), str(source)], check=True)
    monkeypatch.setenv("SEAM_NATIVE_LIBRARY", str(file))
    plugins("native_kernel")


def test_a_foreign_native_kernel_is_one_of_the_programs_calls(built, llama, prompt):
    with LLM(llama, **OPTIONS, kernel=["silu_and_mul=reference"]) as llm:
        plain = llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids
        cut = llm._engine.ready.facts["program"]
        assert f"torch: aten.silu x{LAYERS}" not in cut and "segments" not in cut  # the table has what it is made of
    with LLM(llama, **OPTIONS, kernel=["silu_and_mul=native_silu"]) as llm:
        from seam_native.kernels import calls

        assert llm._engine.ready.facts["program"] == "35 calls"
        before, steps = calls(), llm.call("stats")["steps"]
        assert llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids == plain
        steps = llm.call("stats")["steps"] - steps
        assert calls() - before == LAYERS * steps > 0


def test_an_entry_without_a_slot_for_the_tokens_is_refused_by_name(built, llama, prompt):
    with LLM(llama, **OPTIONS, kernel=["silu_and_mul=unslotted_silu"]) as llm:
        why = "none: rows of seam_silu depends on the number of tokens and is no slot"
        assert llm._engine.ready.facts["program"] == why
        assert len(llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids) == 8
