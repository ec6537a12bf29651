"""A whole model on several ranks, each in a thread, gives the tokens of one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from core_plugin_llama.model import CausalLM

from core_testing.conformance.tools.decoder import Decoder, Track
from core_testing.conformance.tools.tiny_cases import TinyCase
from core_testing.ranks import run_ranks
from core_testing.tinymodels import VOCAB_SIZE, reference_model

SUBJECT = SimpleNamespace(impl=lambda: CausalLM, device="cpu")
PROMPT = [(7 * index * index + 3 * index + 11) % VOCAB_SIZE for index in range(20)]


@pytest.mark.parametrize("family", ["llama", "llama_tied", "llama_bias", "qwen3"])
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_give_the_tokens_of_one(family, size):
    """On four ranks two have the same keys and values; each has a cache of its own heads alone."""
    case = TinyCase(family, "Qwen3ForCausalLM" if family == "qwen3" else "LlamaForCausalLM", reference_model(family))

    def generate(decoder, gathered):
        track, fed, tokens = Track(), PROMPT, []
        for _ in range(8):
            tokens.append(int(gathered(decoder.run([(track, fed)])[0][-1]).argmax()))
            fed = tokens[-1:]
        return tokens

    def rank(ranks, all_reduce):
        decoder = Decoder(SUBJECT, case, ranks=ranks, all_reduce=all_reduce)
        start = ranks.rank * -(-VOCAB_SIZE // size)

        def gathered(logits):
            every = torch.zeros(VOCAB_SIZE)
            every[start : start + len(logits)] = logits
            return all_reduce(every)

        shapes = {tuple(module.kv.shape[-2:]) for module in decoder.attentions}
        return generate(decoder, gathered), shapes

    whole = Decoder(SUBJECT, case)
    due, dim = generate(whole, lambda logits: logits), case.reference.config.head_dim
    for tokens, shapes in run_ranks(size, rank):
        assert tokens == due and len(set(due)) > 2
        assert shapes == {(1, dim)}
