"""Front halves of tasks: calls become prompts, and what comes back becomes answers. Provisional.

Core does the rest, the same for every task: requests are admitted, sent, aborted with whoever waits for them, held back
while the server is paused, and run again in a new engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from core.api.kinds import Chosen

if TYPE_CHECKING:
    from core.api.shapes import ModelShape
    from core.api.tokenizer import Tokenizer

T = TypeVar("T")


class TaskPrompt(Protocol):
    """A prompt, ready to be sent.

    Attributes:
        ids: Its token ids.
        part: What travels with it to the engine half, of the type `Task.part`; None: nothing.
    """

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def part(self) -> Any: ...

    def salt(self, given: str | None) -> str | None:
        """Return what keeps its cached prefixes apart from those of other requests; `given` is the call's own."""
        ...


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """Prompts to be run, and what to make of what comes back.

    Attributes:
        prompts: They run on their own, beside others in one step where there is room.
        finish: Makes the call's results of what `TaskFront.answer` made, one for each prompt, in their order.
    """

    prompts: Sequence[TaskPrompt]
    finish: Callable[[list[Any]], list[T]]


class TaskInputs(Protocol):
    """Prompt inputs that core lends: the model's tokenizer and its limits.

    Attributes:
        tokenizer: The model's; one that refuses every text where the model has none.
        vocab_size: Token ids are below this.
        max_model_len: Longest prompt, in tokens.
        reads_text: Whether the model has a tokenizer.
    """

    tokenizer: Tokenizer
    vocab_size: int
    max_model_len: int

    @property
    def reads_text(self) -> bool: ...

    def check_text(self, param: str) -> None:
        """Refuse a text where the model has no tokenizer. Raises `RequestError`."""
        ...

    def check_chars(self, chars: int, param: str) -> None:
        """Refuse a text that cannot fit, however it is tokenised. Raises `RequestError`."""
        ...

    def check_ids(self, ids: Sequence[Any], param: str) -> None:
        """Raises `RequestError` unless all are ids of the vocabulary."""
        ...

    def tokenize(
        self, texts: Sequence[str], *, param: str, add_special_tokens: bool = True, bounded: bool = True
    ) -> list[list[int]]:
        """Return the ids of each text; with `bounded`, one that no tokenization can make fit is refused unread."""
        ...

    def part_of(self, text: str, tokens: int, side: Literal["left", "right"]) -> str:
        """Return the part of a text that matters where it is cut on `side` to so many tokens."""
        ...


class AskDriven(Protocol):
    """Returns the chosen plugins of a kind of core's that the descriptor drives, each made with a context."""

    def __call__(self, group: str, context: Any) -> Sequence[Chosen]:
        """Return them; `context` gets the options of each.

        Raises:
            PluginError: CORE-P132, it is not among those that the descriptor drives; CORE-P108, one cannot be made.
        """
        ...


def undriven(group: str, context: Any) -> Sequence[Chosen]:
    """Return no plugin: what is asked where nothing is driven."""
    return ()


@dataclass(frozen=True)
class TaskFrontSetup:
    """Context that the front half of a task is constructed with.

    Attributes:
        model_name: Name the model is served under.
        model_config: The checkpoint's configuration as it is on disk.
        shape: The model's.
        inputs: What prompts are made with.
        data: That of the choice.
        options: The plugin's own options.
        driven: Asks for the chosen plugins that the descriptor drives.
    """

    model_name: str
    model_config: Mapping[str, Any]
    shape: ModelShape
    inputs: TaskInputs
    data: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    driven: AskDriven = undriven


class TaskFront:
    """Base of front halves. Torch-free; lives where requests arrive.

    Attributes:
        part: Type of what comes with the end of a request; None: as it is.
        gives: What requests get, in the plural, for errors: "embeddings".
    """

    part: ClassVar[type | None] = None
    gives: str = "no tokens"

    def __init__(self, setup: TaskFrontSetup) -> None:
        return

    def answer(self, part: Any, num_cached_tokens: int) -> Any:
        """Return what `Work.finish` gets for a prompt.

        Args:
            part: What the engine half sent with the end of its request.
            num_cached_tokens: Tokens of the prompt whose keys and values came from the prefix cache.
        """
        return part
