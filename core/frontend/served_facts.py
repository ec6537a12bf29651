"""Facts about a served model, and about its engine."""

from __future__ import annotations

from collections.abc import Mapping

from core.api.errors import EngineError
from core.api.fronts import TaskFront
from core.api.pooling import PoolingFront
from core.api.sampling import SamplingField
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig
from core.frontend.engine_link import EngineLink
from core.frontend.model import FrontModel


class ServedFacts:
    """The facts of a front end that are those of its model and of its link to the engine.

    Attributes:
        model: What requests are read with.
    """

    model: FrontModel
    _link: EngineLink

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.model.tokenizer

    @property
    def grammar_kinds(self) -> frozenset[str]:
        """Kinds of grammar that the engine knows."""
        return self.model.plugins.grammars

    @property
    def honoured(self) -> frozenset[str]:
        """Fields of `SamplingParams` that participants of the engine carry out, of those that core leaves to them."""
        return self.model.plugins.halves.honoured

    @property
    def plugin_fields(self) -> Mapping[str, SamplingField]:
        """Sampling parameters that plugins of the engine declare, by name."""
        return self.model.plugins.fields

    @property
    def model_name(self) -> str:
        """Name the model is served under."""
        return self.model.name

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, in tokens."""
        return self.model.max_model_len

    @property
    def config(self) -> EngineConfig:
        """Configuration of the engine."""
        return self.model.config

    @property
    def default_params(self) -> SamplingParams:
        """Sampling defaults of the model's makers."""
        return self.model.default_params

    @property
    def template_variables(self) -> frozenset[str]:
        """Names that the model's chat template reads."""
        return self.model.template_variables

    @property
    def template_names(self) -> frozenset[str]:
        """The model's own chat templates, which requests may choose by name."""
        return self.model.template_names

    @property
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._link.healthy

    @property
    def failure(self) -> EngineError | None:
        """Why the engine is gone for good."""
        return self._link.failure

    @property
    def retry_after(self) -> int | None:
        """Seconds after which the engine that is being started again should be ready; None if none is."""
        return self._link.retry_after

    @property
    def restarts(self) -> int:
        """How often the engine was started again."""
        return self._link.restarts

    @property
    def pooling(self) -> PoolingFront | None:
        """Front half of the task that makes vectors of prompts; None if the engine has another task."""
        return self.model.pooling

    @property
    def front(self) -> TaskFront | None:
        """The front half of the engine's task, which makes work; None where it generates."""
        return self.model.front
