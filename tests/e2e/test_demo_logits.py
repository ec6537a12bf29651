"""The demo model's logits against transformers, at the level of the worker's model."""

from __future__ import annotations

import numpy as np
import pytest

from core.api import BatchView
from core.config.resolved import Options
from core.options.model import ModelOptions
from core.plugins.active import enter
from core.selection.resolver import resolve


@pytest.mark.covers("MODEL-04", "QUANT-12")
def test_prefill_logits_are_within_a_thousandth_of_the_reference(reference, prompts):
    import torch

    from core.worker.inputs import StepInputs
    from core.worker.loader import load_model

    options = Options(model=ModelOptions(model="smollm2", dtype="float32", max_model_len=256))
    resolution = resolve(options)
    config = resolution.config
    loaded = load_model(config, enter(config.plan), torch.device("cpu"), lambda done, total: None)
    tokenizer = resolution.reader.tokenizer(_path(config))
    worst = 0.0
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor(tokenizer.encode(prompt))
            batch = _bind_one_row(loaded, len(ids), config.block_size)
            every = torch.arange(len(ids))
            step = StepInputs(ids, every, [loaded.backend.plan(batch)], batch, every, every[:0])
            logits = loaded.model.logits(loaded.model.forward(step))
            worst = max(worst, float((logits - reference(ids[None]).logits[0]).abs().max()))
    assert worst < 1e-3


def _path(config):
    from pathlib import Path

    return Path(config.files.path)


def _bind_one_row(loaded, length: int, block_size: int) -> BatchView:
    """Give every layer a cache for one row of `length` tokens in blocks 1, 2, ... and return the batch."""
    import torch

    count = -(-length // block_size)
    for attention in loaded.attentions:
        layout = loaded.backend.kv_layout(attention.site)
        attention.kv = torch.zeros(count + 1, *layout.block_shape, dtype=layout.dtype)
    return BatchView(
        query_starts=np.array([0, length], np.int32),
        seq_lens=np.array([length], np.int32),
        block_tables=torch.arange(1, count + 1, dtype=torch.int32)[None],
        slots=torch.arange(block_size, block_size + length),
        max_query_len=length,
        max_seq_len=length,
    )
