"""The front end's view of one served model: tokenizer, chat template, limits and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from core.api.errors import CheckpointError, ConfigError, RequestError
from core.api.tokenizer import Tokenizer
from core.api.weights import CheckpointInfo, CheckpointReader
from core.config.resolved import EngineConfig
from core.engine.messages import Ready
from core.engine.sampling import SamplingParams
from core.frontend.conversation import Conversation, check_template_args
from core.frontend.inputs import InputProcessor, Prepared
from core.frontend.plugged import FrontPlugins
from core.frontend.pooling import PoolingModel, does_not_generate, does_not_pool
from core.frontend.pooling_inputs import PoolingPrompt
from core.frontend.prompts import PromptInput, Truncation, truncating
from core.frontend.request import GenerationRequest, spelling
from core.tokenizer.chat_template import ChatTemplate, ContentFormat

_NO_PARAMS = SamplingParams(max_tokens=1)
"""What a plugin is shown of a request that samples nothing."""

MAX_REQUEST_TEMPLATE = 2**16
"""Characters of a template that a request may bring: to compile one takes its time."""

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
        ConfigError: CORE-C121, the file of `chat_template` cannot be read; CORE-C136, a default of a template
            variable cannot be.
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
            chars_per_token=config.options.model.max_chars_per_token,
        )
        self.pooling: PoolingModel | None = None
        if config.pooling is not None:
            self.pooling = PoolingModel(self.name, config.pooling, self.inputs, config.shape.hidden_size)
        self.default_params = default_params(config.checkpoint)
        self._template_args = config.options.model.default_chat_template_kwargs
        _check_defaults(self._template_args)
        self._template = self._load_template(config.options.model.chat_template)

    def check_generates(self) -> None:
        """Raises `RequestError` if the model gives vectors instead of text."""
        if self.config.pooling is not None:
            raise does_not_generate(self.name, self.config.pooling)

    def pooler(self) -> PoolingModel:
        """Return what makes vectors of prompts. Raises `RequestError` if the model generates."""
        if self.pooling is None:
            raise does_not_pool(self.name)
        return self.pooling

    def admit(self, prepared: Prepared, priority: int) -> tuple[Prepared, int]:
        """Return a request and its priority after the plugins that change requests.

        Raises:
            RequestError: A plugin refuses it.
        """
        params, priority = self.plugins.request(prepared.prompt.ids, prepared.params, priority)
        if params is prepared.params:
            return prepared, priority
        return self.inputs.fit(prepared.prompt, self.inputs.complete(params)), priority

    def admit_pooling(self, prompts: Sequence[PoolingPrompt]) -> None:
        """Let the plugins that judge requests see those of a pooling call.

        Raises:
            RequestError: A plugin refuses one; nothing was run.
        """
        for prompt in prompts:
            self.plugins.request(prompt.ids, _NO_PARAMS, 0)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered."""
        return self._template is not None

    @property
    def template_variables(self) -> frozenset[str]:
        """Names that the chat template reads."""
        return frozenset() if self._template is None else self._template.variables

    def chat_pieces(
        self, messages: Sequence[Mapping[str, Any]], *, chat_template: str | None = None, **kwargs: Any
    ) -> list[str]:
        """Return a conversation's prompt text in pieces that are tokenised one by one.

        Args:
            chat_template: Jinja source instead of the model's own template.
            kwargs: As for `ChatTemplate.pieces`.

        Raises:
            RequestError: There is no template, or it refuses the conversation.
        """
        template = self._template if chat_template is None else self._compiled(chat_template)
        if template is None:
            raise RequestError(
                f"model '{self.name}' has no chat template; start with --chat-template FILE to give it one",
                param="messages",
            )
        return template.pieces(messages, **{**self._template_args, **kwargs})

    def prepare(self, request: GenerationRequest) -> Prepared:
        """Return a request as it is before plugins see it. Raises `RequestError`."""
        with spelling(request.names):
            if isinstance(request.prompt, Conversation):
                prompt: PromptInput = self.chat_prompt(request.prompt, request.truncation, request.params.max_tokens)
            else:
                prompt = truncating(request.prompt, request.truncation)
            return self.inputs.prepare(prompt, request.params)

    def chat_prompt(
        self, chat: Conversation, truncation: Truncation | None = None, max_tokens: int | None = None
    ) -> dict[str, Any]:
        """Return a conversation as a prompt object; its text is told if nothing was cut. Raises `RequestError`."""
        named = chat.arguments()
        if truncation is not None:
            return {"prompt_token_ids": self.chat_ids(chat.messages, truncation=(truncation, max_tokens), **named)}
        special = bool(named.pop("add_special_tokens", False))
        pieces = self.chat_pieces(chat.messages, **named)
        ids = self.chat_tokens(pieces, add_special_tokens=special)
        return {"prompt": "".join(pieces), "prompt_token_ids": ids}

    def chat_ids(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_special_tokens: bool = False,
        truncation: tuple[Truncation, int | None] | None = None,
        **kwargs: Any,
    ) -> list[int]:
        """Return a conversation's token ids.

        Args:
            add_special_tokens: Let the tokenizer add its own; what the template has written is not doubled.
            truncation: How to cut a prompt that is too long, and how many tokens of output it must leave room for.
        """
        pieces = self.chat_pieces(messages, **kwargs)
        if truncation is None:
            return self.chat_tokens(pieces, add_special_tokens=add_special_tokens)
        pieces = self.inputs.cut_texts(pieces, truncation[0])
        ids = self._encode(pieces, add_special_tokens=add_special_tokens)
        ids = self.inputs.truncated(ids, *truncation)
        self.inputs.check_length(len(ids), "messages")
        return ids

    def chat_tokens(self, pieces: Sequence[str], *, add_special_tokens: bool = False) -> list[int]:
        """Return the token ids of a rendered conversation. Raises `RequestError` if they are too many."""
        self.inputs.check_chars(sum(map(len, pieces)), "messages")
        ids = self._encode(pieces, add_special_tokens=add_special_tokens)
        self.inputs.check_length(len(ids), "messages")
        return ids

    def _encode(self, pieces: Sequence[str], *, add_special_tokens: bool) -> list[int]:
        tokenize = partial(self.inputs.tokenize, param="messages", bounded=False)
        if not add_special_tokens:
            return [token for ids in tokenize(pieces, add_special_tokens=False) for token in ids]
        ids = [*tokenize(pieces[:1])[0], *self._encode(pieces[1:], add_special_tokens=False)]
        doubled = len(ids) > 1 and ids[0] == ids[1] == self.tokenizer.bos_id
        return ids[1:] if doubled else ids

    def _compiled(self, source: str) -> ChatTemplate:
        if len(source) > MAX_REQUEST_TEMPLATE:
            said = f"chat_template has {len(source)} characters; at most {MAX_REQUEST_TEMPLATE}"
            raise RequestError(said, param="chat_template")
        try:
            return self._make_template(source, "auto")
        except CheckpointError as error:
            raise RequestError(error.message, param="chat_template") from error

    def _make_template(self, source: str, content_format: ContentFormat) -> ChatTemplate:
        tokenizer = self.tokenizer
        special = getattr(tokenizer, "special_texts", None)  # beyond the protocol
        if special is None:
            special = [tokenizer.token(token) for token in tokenizer.special_ids]
        return ChatTemplate(source, tokenizer.special_tokens(), content_format=content_format, special_texts=special)

    def _load_template(self, file: str | None) -> ChatTemplate | None:
        source = self.tokenizer.chat_template
        if file is not None:
            try:
                source = Path(file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(
                    "CORE-C121", f"chat template {file} cannot be read: {error}.", hint="Check --chat-template."
                ) from error
        if source is None:
            return None
        return self._make_template(source, self.config.options.model.chat_template_content_format)


def _check_defaults(given: Mapping[str, Any]) -> None:
    try:
        check_template_args(given)
    except RequestError as error:
        message = error.message.replace("template_args", "default_chat_template_kwargs")
        raise ConfigError("CORE-C136", f"{message}.", hint="Check --default-chat-template-kwargs.") from None


def default_params(checkpoint: CheckpointInfo) -> SamplingParams:
    """Return the sampling defaults that the model's makers give, as far as they name any and they are in range."""
    given = {name: checkpoint.generation_config.get(name) for name in _DEFAULTS}
    try:
        return SamplingParams(**{name: value for name, value in given.items() if value is not None})
    except RequestError:
        return SamplingParams()
