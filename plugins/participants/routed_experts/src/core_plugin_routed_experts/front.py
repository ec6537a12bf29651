"""The front half: which requests want their experts, and what they get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from core.api.participants import FrontParticipant, FrontSetup
from core_plugin_routed_experts.parts import PARTS, Asked, Routed

if TYPE_CHECKING:
    from core.api.participants import SamplingParams
    from core.api.requests import Caller


class RoutedExpertsFront(FrontParticipant):
    """Reads `return_routed_experts` and `routed_experts_prompt_start` of requests."""

    parts = PARTS

    def __init__(self, setup: FrontSetup) -> None:
        super().__init__(setup)
        self._always = bool(setup.options["always"])

    def request(self, params: SamplingParams, prompt: np.ndarray, caller: Caller) -> Asked | None:
        """Return what a request wants. Raises `ValueError` for what it cannot have."""
        given = params.extra_args or {}
        wanted, start = given.get("return_routed_experts", self._always), given.get("routed_experts_prompt_start", 0)
        if not isinstance(wanted, bool):
            raise ValueError(f"return_routed_experts is true or false, not {wanted!r:.40}")
        if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start <= len(prompt):
            raise ValueError(
                f"routed_experts_prompt_start is a token of the prompt, 0 to {len(prompt)}, not {start!r:.40}"
            )
        return Asked(start) if wanted else None

    def finished(self, part: Routed) -> np.ndarray:
        """Return `(tokens, layers, k)`: of all tokens of prompt and answer but the last, from the wanted one on."""
        return np.frombuffer(part.ids, part.dtype).reshape(part.shape)
