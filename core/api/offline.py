"""An engine in the process of the command that asked for it. Provisional."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from core.api.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class StepPhase:
    """A phase of the engine's steps that can be timed.

    Attributes:
        name: As profiles call it.
        what: What is done in it, in a few words.
        inner: Whether it is a part of another one.
    """

    name: str
    what: str
    inner: bool = False


class GeneratedSequence(Protocol):
    """One continuation of a prompt.

    Attributes:
        token_ids: Its tokens.
        text: What they say, without special tokens.
    """

    @property
    def token_ids(self) -> Sequence[int]: ...

    @property
    def text(self) -> str: ...


class Generated(Protocol):
    """Result of one prompt.

    Attributes:
        prompt_ids: The prompt's tokens.
        outputs: As many continuations as were asked for.
    """

    @property
    def prompt_ids(self) -> Sequence[int]: ...

    @property
    def outputs(self) -> Sequence[GeneratedSequence]: ...


class OfflineEngine(Protocol):
    """An engine that answers this process alone.

    Attributes:
        model: Name under which its model is known.
        vocab_size: Token ids of prompts are below this.
        tokenizer: The model's.
    """

    @property
    def model(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def generate(
        self, prompts: Sequence[Sequence[int] | str], params: Sequence[Mapping[str, Any]]
    ) -> Sequence[Generated]:
        """Return what is generated for prompts, texts or token ids, that are run together.

        Args:
            params: The sampling parameters of each, by the names that `core.SamplingParams` gives them.

        Raises:
            CoreError: A parameter is not allowed, or the engine failed.
        """
        ...

    def profile(self) -> AbstractContextManager[Mapping[str, Sequence[float]]]:
        """Time the phases of every step in the block; costs nothing outside.

        What it gives is filled at the end: phase (of `CommandHost.step_phases`) -> how often, seconds in all, median,
        99th percentile.
        """
        ...
