"""A model that copies a part of its prompt, by attention alone.

Tokens and positions are codes of bits, each -1 or 1, which every dtype holds exactly. The first layer finds where the
script begins and where it ends; the second looks up the token whose turn it is. Nothing is kept outside the KV cache:
chunks, prefix caching, preemption, connectors and attention backends all have to be right for the text to be right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from acme_core_scripted.config import BITS, HEADS, ScriptedConfig
from core.api import WeightRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

SHARP = 16.0
"""Factor of scores and of hidden states: one wrong bit costs `2 * SHARP`, so that nothing else is ever seen."""


class Scripted:
    """T tokens of a step; B bits."""

    def __init__(self, config: Mapping[str, Any], build: LayerBuilder) -> None:
        self._c = c = ScriptedConfig.read(config)
        geometry = {"num_heads": HEADS, "num_kv_heads": HEADS, "head_dim": BITS}
        self._codes = build.embedding(c.vocab_size, BITS, "codes")
        self._find_script = build.attention(0, scale=1.0, **geometry)
        self._look_up = build.attention(1, scale=1.0, **geometry)
        self.logits = build.lm_head(c.vocab_size, BITS, "lm_head", tied_to=self._codes)

    @classmethod
    def weight_rules(cls, config: Mapping[str, Any]) -> WeightRules:
        """Nothing to rename."""
        return WeightRules()

    def forward(self, step: StepInputs) -> Tensor:
        """Return `SHARP` times the code of each token's successor, `(T, B)`."""
        ids, positions = step.token_ids, step.positions
        said = self._codes(torch.where(ids == self._c.end_id, self._c.eos_id, ids))  # behind the script comes its end
        places = codes_of(positions, said.dtype)
        begin, end = self._script(ids, positions, said.dtype, step)
        wanted = codes_of((begin + positions - end).clamp(min=0), said.dtype)
        idle = torch.zeros_like(said)
        found = self._look_up(_heads(SHARP * wanted, idle), _heads(places, idle), _heads(said, idle), step)
        return SHARP * found[:, :BITS].sign()

    def _script(self, ids: Tensor, positions: Tensor, dtype: torch.dtype, step: StepInputs) -> tuple[Tensor, Tensor]:
        """Return for every token where the script before it begins and ends, each `(T,)` int64."""
        begins, ends = ids == self._c.begin_id, ids == self._c.end_id
        # The first token is the beginning where none is marked: noticed, but less than a mark.
        notice = torch.where(begins, 4.0, torch.where(positions == 0, 2.0, 0.0)).to(dtype)
        keys = _heads(notice[:, None].expand(-1, BITS), (4.0 * ends).to(dtype)[:, None].expand(-1, BITS))
        after = codes_of(torch.where(begins, positions + 1, 0), dtype)
        values = _heads(after, codes_of(positions, dtype))
        found = self._find_script(torch.ones_like(keys), keys, values, step)
        return numbers_of(found[:, :BITS]), numbers_of(found[:, BITS:])


def codes_of(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the bits of `numbers (T,)` as -1 and 1, `(T, B)`."""
    shifts = torch.arange(BITS, device=numbers.device)
    return ((numbers[:, None] >> shifts & 1) * 2 - 1).to(dtype)


def numbers_of(codes: Tensor) -> Tensor:
    """Return the numbers whose codes these are, `(T, B) -> (T,)` int64."""
    shifts = torch.arange(BITS, device=codes.device)
    return ((codes > 0).long() << shifts).sum(-1)


def _heads(first: Tensor, second: Tensor) -> Tensor:
    return torch.stack((first, second), dim=1)
