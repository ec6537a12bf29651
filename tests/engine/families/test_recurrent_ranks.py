"""Families with recurrent states on several ranks, each in a thread: together they give the logits of one.

A mixer that ranks can divide has its share of the states on each; one that they cannot divide is whole on each.
"""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from math import prod
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from core.api.errors import CheckpointError
from core_testing.conformance.tools.decoder import Decoder, Track
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.ranks import run_ranks

TOKENS = [(7 * index * index + 3 * index + 11) % 300 for index in range(20)]
SPECS = [one.load() for one in entry_points(group="core.models")]

NORM = "two groups of a norm"
KEYS = "two heads of keys"
WHOLE = {
    2: {"kimi_linear": "three heads"},
    4: {
        **dict.fromkeys(("mamba2", "bamba_biased", "falcon_h1_normed", "granite_hybrid_dense"), NORM),
        **dict.fromkeys(("nemotron_h_biased", "zamba2_biased"), NORM),
        **dict.fromkeys(("qwen3_next", "qwen3_next_mixed", "qwen3_5", "qwen3_5_moe"), KEYS),
        "kimi_linear": "three heads",
        "kimi_linear_grouped": "two heads",
        "mamba2_limited": "ten heads",
        **dict.fromkeys(("plamo2", "plamo2_untied"), "six heads"),
    },
}
"""Number of ranks -> row -> why its mixers are whole on each."""

REFUSED = {("minimax_m1", 4)}
"""Rows whose attention cannot be divided: the number of ranks is an error then."""


class Case:
    """A checkpoint of a row, as the kit's decoder takes it."""

    def __init__(self, made):
        self.config = json.loads((made.directory / "config.json").read_text())
        self._stored = load_file(made.directory / "model.safetensors")

    def tensors(self):
        return [PlainTensor(name, value) for name, value in self._stored.items()]


def spec_of(row):
    return next(spec for spec in SPECS if row.architecture in spec.architectures)


def run(decoder):
    """Return the logits of a sequence in three steps, beside another one in the second."""
    track, other = Track(), Track()
    first = decoder.run([(track, TOKENS[:9])])[0]
    second = decoder.run([(other, TOKENS[3:8]), (track, TOKENS[9:17])])
    last = decoder.run([(track, TOKENS[17:]), (other, TOKENS[8:9])])
    return torch.cat([first, second[1], last[0]]), torch.cat([second[0], last[1]])


@pytest.mark.covers("MODEL-04", "ATTN-11")
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_give_the_logits_of_one(recurrent, size):
    case, spec = Case(recurrent), spec_of(recurrent.row)
    subject = SimpleNamespace(impl=lambda: resolve_name(spec.impl), device="cpu")
    whole = Decoder(subject, case)
    due = run(whole)

    def rank(ranks, all_reduce):
        decoder = Decoder(subject, case, ranks=ranks, all_reduce=all_reduce)
        return [state.shape for state in decoder.states], run(decoder)

    if (recurrent.row.name, size) in REFUSED:
        with pytest.raises(CheckpointError, match="CORE-M183"):
            run_ranks(size, rank)
        return
    found = run_ranks(size, rank)
    for place, one in enumerate(due):
        logits = torch.cat([texts[place] for _, texts in found], dim=-1)
        torch.testing.assert_close(logits, one, atol=1e-3, rtol=1e-3)
    for shapes, _ in found:
        # Of a convolution the channels of B and C are on each rank that reads them: its state is not as small.
        divided = max(prod(state.shape) / prod(own) for state, own in zip(whole.states, shapes, strict=True))
        assert divided == (1 if recurrent.row.name in WHOLE[size] else size)


@pytest.mark.covers("ATTN-11")
def test_a_sequence_goes_on_from_the_blocks_and_states_of_another(recurrent):
    subject = SimpleNamespace(impl=lambda: resolve_name(spec_of(recurrent.row).impl), device="cpu")
    decoder, shared = Decoder(subject, Case(recurrent)), 16  # a whole block
    whole = decoder.run([(Track(), TOKENS)])[0]
    first = Track()
    decoder.run([(first, TOKENS[:shared])])
    second = decoder.fork(first)
    decoder.run([(first, TOKENS[2:6])])
    torch.testing.assert_close(decoder.run([(second, TOKENS[shared:])])[0], whole[shared:], atol=1e-3, rtol=1e-3)
