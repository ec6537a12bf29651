"""An engine in the process of a command of a plugin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from core.api.offline import StepPhase
from core.cli.host.options import loaded_of

if TYPE_CHECKING:
    from core import LLM
    from core.api.given_options import GivenOptions
    from core.api.tokenizer import Tokenizer
    from core.frontend.results import RequestOutput


@contextmanager
def opened(options: GivenOptions) -> Iterator[Engine]:
    """Start the engine in the way `LLM(...)` does and end it after the block."""
    from core import LLM

    llm = LLM(**loaded_of(options).given())
    try:
        yield Engine(llm)
    finally:
        llm.close()


def step_phases() -> list[StepPhase]:
    """Return what a profile times, in the order in which a step goes through it."""
    from core.engine.profile import INNER, PHASES

    return [StepPhase(name, what, name in INNER) for name, what in PHASES.items()]


class Engine:
    """An engine for one command alone; `OfflineEngine`."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    @property
    def model(self) -> str:
        """Name under which the model is known."""
        return str(self._llm.config.files.name)

    @property
    def vocab_size(self) -> int:
        """Token ids of prompts are below this."""
        return self._llm.config.shape.vocab_size

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._llm.get_tokenizer()

    def generate(
        self, prompts: Sequence[Sequence[int] | str], params: Sequence[Mapping[str, Any]]
    ) -> list[RequestOutput]:
        """Return what is generated for prompts that are run together."""
        from core import SamplingParams

        inputs: list[Any] = [
            prompt if isinstance(prompt, str) else {"prompt_token_ids": list(prompt)} for prompt in prompts
        ]
        return self._llm.generate(inputs, [SamplingParams(**one) for one in params])

    def profile(self) -> AbstractContextManager[Mapping[str, Sequence[float]]]:
        """Time the phases of every step in the block."""
        return self._llm.profile()
