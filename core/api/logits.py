"""Logits processors: batch-level changes of logits before a token is chosen. Provisional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from core.api.sampling import SamplingView


@dataclass(frozen=True, slots=True)
class LogitsContext:
    """Context that a logits processor is constructed with.

    Attributes:
        device: Where the logits live.
        vocab_size: Columns of the logits.
        max_rows: Rows are numbered `0 .. max_rows - 1`; a request keeps its row for life.
        tokens: `(max_rows, max_model_len + 1)` int32 on the device: prompt, then output tokens of every row. Read only.
        options: The plugin's own options.
        numbers: Name of a field of `LogitsSpec.fields` -> `(max_rows,)` float64 on the host: what each row's request
            says of it, checked, else its default; a truth value is 0 or 1. Filled before `admit` is asked. Read only.
    """

    device: torch.device
    vocab_size: int
    max_rows: int
    tokens: Tensor
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, np.ndarray] = field(default_factory=dict)


class LogitsProcessor(Protocol):
    """Runtime of a `LogitsSpec`, in the worker.

    Attributes:
        is_argmax_invariant: True when `apply` never changes which token is the most likely: the processor then runs
            for rows that are drawn at random only, after temperature.
    """

    is_argmax_invariant: bool

    def __init__(self, ctx: LogitsContext) -> None: ...

    def admit(self, row: int, params: SamplingView, prompt: np.ndarray) -> bool:
        """A request takes `row`: keep what `apply` needs and say whether this processor concerns it at all.

        A request may come with output already, from an engine that was started again: `output_counts` is then not 0
        when it is first asked about, and `LogitsContext.tokens` has the tokens.

        A processor with `LogitsSpec.fields` is asked only about requests that set one of them to something else than
        its default, or that have one of its `args`.

        Args:
            prompt: `(prompt,)` int32 token ids.

        Raises:
            Exception: Ends this request alone, with the message.
        """
        ...

    def release(self, row: int) -> None:
        """The request that `admit` accepted on `row` is gone; told at the latest when the row is given away again."""
        ...

    def apply(self, logits: Tensor, rows: np.ndarray, output_counts: np.ndarray) -> None:
        """Change `logits (n, vocab)` float32 in place.

        Args:
            rows: `(n,)` int64, the row of each line; only rows that `admit` accepted.
            output_counts: `(n,)` int64, output tokens each row has so far. With `LogitsSpec.drafts` a row may come
                several times, each time with one token more: what stands before it in `LogitsContext.tokens` are then
                drafts in part.
        """
        ...
