"""A model and an attention backend that are named when they fail; what the model returns is compared with the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, cast

from core.api.errors import PluginError
from core.layers.guard import PASSED, shown
from core.plugins.drivers import describe

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.attention import AttentionBackend, AttentionPlan, BatchView
    from core.api.layers import StepInputs
    from core.api.models import Classifies, Model


class GuardedModel:
    """A model as runners call it.

    Args:
        owner: Kind, name, distribution and version of the plugin.
        vocab_size: Columns of the logits.
    """

    def __init__(self, model: Model, owner: str, vocab_size: int) -> None:
        self._model, self._owner, self._vocab_size = model, owner, vocab_size

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(tokens, hidden)`.

        Raises:
            PluginError: CORE-P170, the model returned the wrong thing; CORE-P108, it raised.
        """
        hidden: Any = None
        cause: Exception | None = None
        try:
            hidden = self._model.forward(step)
            if hidden.dim() == 2 and hidden.shape[0] == step.token_ids.shape[0]:
                return cast("Tensor", hidden)
        except Exception as error:
            cause = error
        return self._fail("forward()", hidden, f"({len(step.token_ids)}, hidden)", cause)

    def logits(self, hidden: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, vocab)`. Raises as `forward` does."""
        logits: Any = None
        cause: Exception | None = None
        try:
            logits = self._model.logits(hidden)
            if logits.shape == (hidden.shape[0], self._vocab_size) and logits.is_floating_point():
                return cast("Tensor", logits)
        except Exception as error:
            cause = error
        return self._fail("logits()", logits, f"({len(hidden)}, {self._vocab_size}) of a float dtype", cause)

    def classify(self, hidden: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, labels)`. Raises as `forward` does."""
        scores: Any = None
        cause: Exception | None = None
        try:
            scores = cast("Classifies", self._model).classify(hidden)
            if scores.dim() == 2 and scores.shape[0] == hidden.shape[0]:
                return cast("Tensor", scores)
        except Exception as error:
            cause = error
        return self._fail("classify()", scores, f"({len(hidden)}, labels)", cause)

    def _fail(self, method: str, result: object, wanted: str, cause: Exception | None) -> NoReturn:
        if isinstance(cause, PASSED):
            raise cause
        if cause is not None:
            raise PluginError("CORE-P108", f"{self._owner}: {method} raised {describe(cause)}.") from cause
        raise PluginError("CORE-P170", f"{self._owner}: {method} returned {shown(result)}; expected {wanted}.")


class GuardedBackend:
    """An attention backend as runners call it.

    Args:
        owner: Kind, name, distribution and version of the plugin.
    """

    def __init__(self, backend: AttentionBackend, owner: str) -> None:
        self._backend, self._owner = backend, owner

    def plan(self, batch: BatchView) -> AttentionPlan:
        """Prepare a step. Raises `PluginError` CORE-P108 where the backend raises something without a code."""
        try:
            return self._backend.plan(batch)
        except PASSED:
            raise
        except Exception as error:
            raise PluginError("CORE-P108", f"{self._owner}: plan() raised {describe(error)}.") from error
