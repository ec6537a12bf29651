"""New weights reach a running engine, all at once."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core_testing.tinymodels import tiny_llama

GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
PROMPT = {"prompt_token_ids": list(range(3, 40))}


@pytest.mark.covers("WT-01")
def test_an_update_from_disk_changes_every_later_token_and_drops_the_cache(tmp_path):
    old, new = tiny_llama(tmp_path / "old", seed=1), tiny_llama(tmp_path / "new", seed=2)

    def tokens(llm):
        return llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids

    with LLM(str(new), dtype="float32", num_blocks=32) as llm:
        wanted = tokens(llm)
    with LLM(str(old), dtype="float32", num_blocks=32, weight_transfer="disk") as llm:
        before = tokens(llm)
        assert before != wanted
        assert llm.call("update_weights", {"path": str(new), "version": "v2"}) == "v2"
        assert tokens(llm) == wanted
        assert llm.call("worker", "weight_version") == "v2"


def test_an_update_also_empties_the_connectors(tmp_path):
    """Blocks computed with the old weights must not come back from host memory."""
    old, new = tiny_llama(tmp_path / "old", seed=1), tiny_llama(tmp_path / "new", seed=2)
    prompts = [{"prompt_token_ids": [3 + (i * 13 + j) % 90 for j in range(60)]} for i in range(4)]
    blocks = {"num_blocks": 16, "block_size": 8, "max_model_len": 96, "max_num_seqs": 1}

    def tokens(llm):
        return [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)]

    with LLM(str(new), dtype="float32", **blocks) as llm:
        wanted = tokens(llm)
    options = {"weight_transfer": "disk", "kv_connector": ["cpu_offload"], **blocks}
    with LLM(str(old), dtype="float32", **options) as llm:
        assert tokens(llm) == tokens(llm) != wanted
        assert llm.call("participant_stats")["cpu_offload"]["loaded"] > 0
        llm.call("update_weights", {"path": str(new)})
        assert tokens(llm) == wanted


def test_a_broken_update_leaves_the_old_weights(tmp_path):
    from core.api.errors import CoreError

    old = tiny_llama(tmp_path / "old", seed=1)
    with LLM(str(old), dtype="float32", num_blocks=32, weight_transfer="disk") as llm:
        before = llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids
        with pytest.raises(CoreError, match="CORE-M150"):
            llm.call("update_weights", {"path": str(tmp_path / "nowhere")})
        assert llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids == before
