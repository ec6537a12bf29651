"""The front end's view of one served model: tokenizer, chat template, limits and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Literal, NoReturn, Protocol

from core.api.errors import CheckpointError, ConfigError, RequestError
from core.api.fronts import TaskFrontSetup, TaskPrompt
from core.api.pooling import PoolingFront
from core.api.requests import Caller
from core.api.sampling import SamplingField
from core.api.sampling_params import SamplingParams
from core.api.sampling_table import FROM_MODEL
from core.api.templates import ContentFormat, TemplateContext
from core.api.tokenizer import Tokenizer, extras_of
from core.api.weights import CheckpointInfo, CheckpointReader
from core.config.resolved import EngineConfig
from core.engine.messages import Ready
from core.frontend.conversation import Conversation, check_template_args
from core.frontend.front_plugins import FrontPlugins
from core.frontend.inputs import InputProcessor, Prepared
from core.frontend.prompts import Cut, PromptIds, TokenizedPrompt, prompt_ids
from core.frontend.request import GenerationRequest
from core.frontend.spelling import spelling
from core.frontend.tasks.refusals import does_not_generate, does_not_pool
from core.frontend.templates import TemplateSet, known_names, template_sources
from core.frontend.templating import Template, no_engine
from core.selection.no_tokenizer import tokenizer_of

_NO_PARAMS = SamplingParams(max_tokens=1)
"""Sampling parameters that plugins are shown of a request that samples nothing."""

MAX_REQUEST_TEMPLATE = 2**16
"""Characters of a template that a request may bring: to compile one takes its time."""


class Resolved(Protocol):
    """The part of `core.selection.resolver.Resolution` that is used here."""

    config: EngineConfig
    reader: CheckpointReader


class FrontModel:
    """Everything that turns requests of one model into engine input.

    Args:
        tokenizer: The model's, if it was built ahead.

    Attributes:
        front: The front half of the engine's task; None where it generates.

    Raises:
        CheckpointError: The tokenizer or its chat template cannot be used.
        ConfigError: CORE-C121, `chat_template` is none; CORE-C136, a default of a template variable cannot be.
    """

    def __init__(self, resolution: Resolved, ready: Ready, tokenizer: Tokenizer | None = None) -> None:
        config = resolution.config.shortened(ready.max_model_len)
        self.config = config
        self.plugins = FrontPlugins(config.plan)
        self.tokenizer = tokenizer or tokenizer_of(resolution.reader, config)
        self.name = config.options.model.served_model_name or config.files.name
        # A request that could never get its KV blocks is refused here, with the reason, not by the engine.
        self.max_model_len = ready.max_model_len
        self.inputs = InputProcessor(
            self.tokenizer,
            vocab_size=config.shape.vocab_size,
            max_model_len=self.max_model_len,
            check=self.plugins.check,
            chars_per_token=config.options.model.max_chars_per_token,
        )
        lent = TaskFrontSetup(self.name, config.checkpoint.config, config.shape, self.inputs, config.task_data)
        self.front = self.plugins.front(lent)
        self.default_params = default_params(config.checkpoint, self.plugins.fields)
        self._template_args = config.options.model.default_chat_template_kwargs
        _check_defaults(self._template_args)
        engine = self.plugins.templating
        self._templates = TemplateSet(
            template_sources(config, self.tokenizer, engine.marks) if engine else {},
            partial(self._make_template, content_format=_told(config.options.model.chat_template_content_format)),
        )

    def check_generates(self) -> None:
        """Raises `RequestError` if the engine's task is another one."""
        if self.front is not None:
            raise does_not_generate(self.name, self.front)

    @property
    def pooling(self) -> PoolingFront | None:
        """Front half of the task that makes vectors of prompts; None if the engine has another task."""
        return self.front if isinstance(self.front, PoolingFront) else None

    def pooler(self) -> PoolingFront:
        """Return what makes vectors of prompts. Raises `RequestError` if the engine has another task."""
        found = self.pooling
        if found is None:
            raise does_not_pool(self.name, self.front)
        return found

    def admit(self, prepared: Prepared) -> Prepared:
        """Return a request after the plugins that change requests.

        Raises:
            RequestError: A plugin refuses it.
        """
        request, prompt = prepared.request, prepared.prompt
        params, priority = self.plugins.request(prompt.ids, prepared.params, prepared.priority, request.caller)
        if params is not prepared.params:
            prepared = self.inputs.fit(request, prompt, self.inputs.complete(params), priority)
        elif priority != prepared.priority:
            prepared = replace(prepared, priority=priority)
        parts = self.plugins.halves.request(prepared.params, prompt.ids, request.caller)
        return replace(prepared, parts=parts) if parts else prepared

    def admit_work(self, prompts: Sequence[TaskPrompt], caller: Caller) -> None:
        """Let the plugins that judge requests see those of a call of a task.

        Raises:
            RequestError: A plugin refuses one; nothing was run.
        """
        for prompt in prompts:
            self.plugins.request(prompt.ids, _NO_PARAMS, 0, caller)

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered."""
        return bool(self._templates.names)

    @property
    def template_variables(self) -> frozenset[str]:
        """Names that the chat template reads."""
        return self._templates.variables

    @property
    def template_names(self) -> frozenset[str]:
        """The model's own chat templates, which requests may choose by name."""
        return self._templates.names

    def prepare(self, request: GenerationRequest) -> Prepared:
        """Return a request as it is before plugins see it. Raises `RequestError`."""
        with spelling(request.names):
            return self.inputs.settled(request, self.tokenized(request))

    def tokenized(self, request: GenerationRequest) -> TokenizedPrompt:
        """Return a request's prompt. Raises `RequestError`."""
        if request.conversation is not None and request.rendered_ids is None:
            return self.chat_prompt(request.conversation, request.cut)
        return self.inputs.tokenized(request)

    def chat_prompt(self, chat: Conversation, cut: Cut | None = None) -> TokenizedPrompt:
        """Return a conversation as a prompt; its text is told if nothing was cut. Raises `RequestError`."""
        texts = self.chat_texts(chat, cut)
        ids = self.chat_tokens(texts, chat.add_special_tokens, cut)
        return TokenizedPrompt(None if cut else "".join(texts), ids)

    def chat_texts(self, chat: Conversation, cut: Cut | None = None) -> list[str]:
        """Return what of a conversation is to be tokenised, piece by piece.

        Raises:
            RequestError: There is no template, it refuses the conversation, or that is too long and must not be cut.
        """
        pieces = self.chat_pieces(chat)
        if cut is not None:
            return self.inputs.cut_texts(pieces, cut[0])
        self.inputs.check_chars(sum(map(len, pieces)), "messages")
        return pieces

    def chat_pieces(self, chat: Conversation) -> list[str]:
        """Return a conversation's prompt text as `Template.pieces` does. Raises `RequestError`."""
        if chat.template is None:
            template = self._templates.choose(tools=bool(chat.offered)) or self._no_template()
        else:
            template = self._templates.named(chat.template) or self._compiled(chat.template)
        return template.pieces(chat, self._template_args)

    def chat_tokens(self, texts: Sequence[str], special: bool, cut: Cut | None = None) -> PromptIds:
        """Return the token ids of what `chat_texts` gives; see `joined`. Raises `RequestError` if they are too many."""
        tokenize = partial(self.inputs.tokenize, param="messages", bounded=False)
        found = [*tokenize(texts[:special]), *tokenize(texts[special:], add_special_tokens=False)]
        return self.joined(found, special, cut)

    def joined(self, found: Sequence[list[int]], special: bool, cut: Cut | None = None) -> PromptIds:
        """Return a conversation's token ids, given those of each piece. Raises `RequestError` if they are too many.

        Args:
            special: The first piece has the tokenizer's own tokens; what the template has written is not doubled.
        """
        ids = prompt_ids(())
        for piece in found:
            ids.fromlist(piece)
        if special and len(ids) > 1 and ids[0] == ids[1] == self.tokenizer.bos_id:
            del ids[0]
        if cut is not None:
            ids = self.inputs.truncated(ids, *cut)
        self.inputs.check_length(len(ids), "messages")
        return ids

    def _no_template(self) -> NoReturn:
        """Say what to do about it. Raises `RequestError`."""
        own, known = sorted(self._templates.names), self._formats
        if self.plugins.templating is None:
            said = f"cannot be asked by conversations: {no_engine(self.config.options.select.chat_template_engine)}"
        elif own:
            said = f"has chat templates for special purposes only: choose {' or '.join(own)} with chat_template"
        else:
            names = f", or to a name ({', '.join(known)})" if known else ""
            said = f"has no chat template; start with --chat-template set to a file{names} to give it one"
        raise RequestError(f"model '{self.name}' {said}", param="messages", code="no_chat_template")

    @cached_property
    def _formats(self) -> list[str]:
        return known_names(self.config)

    def _compiled(self, source: str) -> Template:
        if len(source) > MAX_REQUEST_TEMPLATE:
            said = f"chat_template has {len(source)} characters; at most {MAX_REQUEST_TEMPLATE}"
            raise RequestError(said, param="chat_template")
        try:
            return self._make_template(source, None)
        except CheckpointError as error:
            raise RequestError(error.message, param="chat_template") from error

    def _make_template(self, source: str, content_format: ContentFormat | None) -> Template:
        engine = self.plugins.templating or self._no_template()
        context = TemplateContext(
            tokens=self.tokenizer.special_tokens(),
            special_texts=frozenset(extras_of(self.tokenizer).special_texts),
            content_format=content_format,
        )
        return engine.compile(source, context)


def _told(content_format: Literal["auto", "string", "openai"]) -> ContentFormat | None:
    return None if content_format == "auto" else content_format


def _check_defaults(given: Mapping[str, Any]) -> None:
    try:
        check_template_args(given)
    except RequestError as error:
        message = error.message.replace("template_args", "default_chat_template_kwargs")
        raise ConfigError("CORE-C136", f"{message}.", hint="Check --default-chat-template-kwargs.") from None


def default_params(
    checkpoint: CheckpointInfo, fields: Mapping[str, SamplingField] = MappingProxyType({})
) -> SamplingParams:
    """Return the sampling defaults that the model's makers give, as far as they name any and they are in range.

    Args:
        fields: Those that plugins declare.
    """
    told = checkpoint.generation_config
    given = {name: told[name] for name in FROM_MODEL if told.get(name) is not None}
    extra = {name: told[name] for name, one in fields.items() if one.from_model and told.get(name) is not None}
    try:
        for name, value in extra.items():
            fields[name].check(value)
        return SamplingParams(**given, extra_args=extra or None)
    except RequestError:
        return SamplingParams()
