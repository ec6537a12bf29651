"""The prompt's log-probabilities as they arrive: at once, or in the pieces of a chunked prefill."""

from __future__ import annotations

from core.frontend.results import RequestOutput
from core.server.openai.logprobs import Position


class PromptScores:
    """Collects `RequestOutput.prompt_logprobs` of one prompt.

    Attributes:
        positions: One entry per prompt token, None for the first; None when nothing was asked for.
    """

    def __init__(self) -> None:
        self.positions: list[Position | None] | None = None

    def add(self, output: RequestOutput) -> None:
        """Take what an output brings; a complete list replaces what was there."""
        new = output.prompt_logprobs
        if new is None:
            return
        if self.positions is None or len(new) == len(output.prompt_token_ids):
            self.positions = list(new)
        else:
            self.positions.extend(new)
