"""`LLM.beam_search`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any

from core.api.errors import EngineError
from core.frontend.beams.outputs import beam_outputs, start_search, step_params
from core.frontend.beams.search import BeamSearchParams, Position, search
from core.frontend.model import FrontModel
from core.frontend.prompts import PromptInput, as_list
from core.frontend.results import CompletionOutput, RequestOutput


class BeamCalls:
    """Beam search as rounds of ordinary requests for one token each; what they share comes from the prefix cache.

    Attributes:
        model: What prompts are read with.
    """

    model: FrontModel

    @abstractmethod
    def generate(self, prompts: Any, sampling_params: Any = None) -> list[RequestOutput]:
        """As `LLM.generate`."""

    def beam_search(
        self, prompts: PromptInput | Sequence[PromptInput], params: BeamSearchParams
    ) -> list[RequestOutput]:
        """Return for each prompt the `beam_width` sequences that the model finds most likely, best first.

        Raises:
            RequestError: A prompt or parameter cannot be served.
            EngineError: The engine failed.
        """
        self.model.check_generates()
        tokenizer, found = self.model.tokenizer, self.model.inputs.prompts(as_list(prompts))
        searches = [start_search(params, prompt.ids, tokenizer, self.model.max_model_len) for prompt in found]
        search([prompt.ids for prompt in found], searches, self._next_tokens)
        numbers = count()
        return [
            RequestOutput(
                f"beam-search-{next(numbers)}",
                prompt.text,
                prompt.ids,
                beam_outputs(one.results(), params, prompt.ids, tokenizer, "length"),
                finished=True,
            )
            for prompt, one in zip(found, searches, strict=True)
        ]

    def _next_tokens(self, sequences: Sequence[list[int]], keep: int) -> list[Position]:
        outputs = self.generate(list(sequences), step_params(keep))
        return [_scores(output.outputs[0]) for output in outputs]


def _scores(output: CompletionOutput) -> Position:
    if output.finish_reason == "error" or not output.logprobs:
        raise EngineError("CORE-E153", f"beam search cannot go on: {output.error or 'a request was ended'}.")
    return output.logprobs[0]
