"""The same tokens as the reference backend, whatever the model, the batch and the chunks."""

from __future__ import annotations

import pytest
import torch
from acme_core_einsum.backend import EinsumBackend
from acme_core_einsum.manifest import EINSUM_PAGED

from core import LLM, SamplingParams
from core.api import AttentionContext, AttentionSite
from core.config.resolved import Options
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.tinymodels import tiny_model

GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
PROMPTS = [{"prompt_token_ids": [3 + (i * 29 + length) % 90 for i in range(length)]} for length in (1, 7, 16, 33, 70)]


def tokens(checkpoint, backend, **options):
    settings = {"dtype": "float32", "num_blocks": 120, "block_size": 8, "max_model_len": 128, **options}
    with LLM(str(checkpoint), attention_backend=backend, **settings) as llm:
        return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize("family", ["llama", "mistral_window"])
def test_greedy_tokens_equal_the_reference_backend(family, tmp_path):
    checkpoint = tiny_model(tmp_path, family)
    expected = tokens(checkpoint, "torch_sdpa")
    assert len({tuple(row) for row in expected}) > 1
    assert tokens(checkpoint, "einsum_paged") == expected
    assert tokens(checkpoint, "einsum_paged", max_chunk=5, max_num_seqs=2) == expected


def test_a_soft_cap_bends_the_scores():
    site = AttentionSite(0, 1, 1, 2, 1.0, softcap=2.0)
    ctx = AttentionContext(torch.device("cpu"), torch.float32, torch.float32, 4)
    layer, kv = EinsumBackend(ctx).layer(site), torch.zeros(1, 1, 2, 4, 2)
    kv[0, 0, 0, :2] = torch.tensor([[8.0, 0.0], [0.0, 8.0]])
    kv[0, 0, 1, :2] = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    plan = row_plan()
    out = layer.forward(torch.tensor([[[1.0, 0.0]]]), kv, plan)
    scores = torch.tanh(torch.tensor([8.0, 0.0]) / 2.0) * 2.0
    torch.testing.assert_close(out[0], scores.softmax(0))


def row_plan():
    from acme_core_einsum.backend import RowPlan, StepPlan

    empty = torch.zeros(0, dtype=torch.int64)
    return StepPlan(empty, empty, [RowPlan(0, 1, torch.zeros(1, dtype=torch.int64), 2)])


def test_it_is_never_chosen_automatically_but_says_why(tmp_path):
    resolution = resolve(Options(model=ModelOptions(model=str(tiny_model(tmp_path)))))
    report = next(one for one in resolution.reports if one.group == EINSUM_PAGED.group)
    assert report.chosen.entry.name != "einsum_paged"
    row = next(row for row in report.rows if row.name == "einsum_paged")
    assert row.state == "rejected"
    assert "experimental" in row.reasons[0]
