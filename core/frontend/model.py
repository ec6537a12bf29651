"""The front end's view of one served model: tokenizer, chat template, limits and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from core.api.errors import ConfigError, RequestError
from core.api.tokenizer import Tokenizer
from core.api.weights import CheckpointInfo, CheckpointReader
from core.config.resolved import EngineConfig
from core.engine.messages import Ready
from core.engine.sampling import SamplingParams
from core.frontend.inputs import InputProcessor, Prepared
from core.frontend.plugged import FrontPlugins
from core.tokenizer.chat_template import ChatTemplate

_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


class Resolved(Protocol):
    """What is needed of `core.boot.Resolution`."""

    config: EngineConfig
    reader: CheckpointReader


class FrontModel:
    """Everything that turns requests of one model into engine input.

    Args:
        tokenizer: The model's, if it was built ahead.

    Raises:
        CheckpointError: The tokenizer or its chat template cannot be used.
        ConfigError: CORE-C121, the file of `chat_template` cannot be read.
    """

    def __init__(self, resolution: Resolved, ready: Ready, tokenizer: Tokenizer | None = None) -> None:
        config = resolution.config
        self.config = config
        self.plugins = FrontPlugins(config.plan)
        self.tokenizer = tokenizer or resolution.reader.tokenizer(Path(config.checkpoint.path))
        self.name = config.options.model.served_model_name or config.files.name
        # A request that could never get its KV blocks is refused here, with the reason, not by the engine.
        self.max_model_len = min(ready.max_model_len, ready.num_blocks * ready.block_size)
        self.inputs = InputProcessor(
            self.tokenizer,
            vocab_size=config.shape.vocab_size,
            max_model_len=self.max_model_len,
            check=self.plugins.check,
        )
        self.default_params = default_params(config.checkpoint)
        self._template = self._load_template(config.options.model.chat_template)

    def admit(self, prepared: Prepared, priority: int) -> tuple[Prepared, int]:
        """Return a request and its priority after the plugins that change requests.

        Raises:
            RequestError: A plugin refuses it.
        """
        params, priority = self.plugins.request(prepared.prompt.ids, prepared.params, priority)
        if params is prepared.params:
            return prepared, priority
        return self.inputs.fit(prepared.prompt, self.inputs.complete(params)), priority

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered."""
        return self._template is not None

    def chat_text(self, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> str:
        """Return a conversation's prompt text; arguments as for `ChatTemplate.render`. Raises `RequestError`."""
        if self._template is None:
            raise RequestError(
                f"model '{self.name}' has no chat template; start with --chat-template FILE to give it one",
                param="messages",
            )
        return self._template.render(messages, **kwargs)

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> list[int]:
        """Return a conversation's token ids. The template writes special tokens itself, so none are added."""
        return self.chat_tokens(self.chat_text(messages, **kwargs))

    def chat_tokens(self, text: str) -> list[int]:
        """Return the token ids of a rendered conversation. Raises `RequestError` if they are too many."""
        ids = self.inputs.tokenize([text], param="messages", add_special_tokens=False)[0]
        self.inputs.check_length(len(ids), "messages")
        return ids

    def _load_template(self, file: str | None) -> ChatTemplate | None:
        source = self.tokenizer.chat_template
        if file is not None:
            try:
                source = Path(file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    "CORE-C121", f"chat template {file} cannot be read: {error}.", hint="Check --chat-template."
                ) from error
        return None if source is None else ChatTemplate(source, self.tokenizer.special_tokens())


def default_params(checkpoint: CheckpointInfo) -> SamplingParams:
    """Return the sampling defaults that the model's makers give, as far as they name any and they are in range."""
    given = {name: checkpoint.generation_config.get(name) for name in _DEFAULTS}
    try:
        return SamplingParams(**{name: value for name, value in given.items() if value is not None})
    except RequestError:
        return SamplingParams()
