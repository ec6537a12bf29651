"""Template engines: a conversation gives its text or a refusal, in time, and what it says stays text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any

from msgspec.structs import replace

from core.api.errors import RequestError
from core.api.templates import (
    MAX_PROMPT_CHARS,
    ChatTemplate,
    RenderTimeoutError,
    TemplateContext,
    TemplateEngine,
    TemplateInput,
)
from core.plugins.drivers import own_arguments
from core_testing.conformance.outcome import Failed, checks, require
from core_testing.conformance.samples import TemplateSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.options import every_options

_SOURCES = (
    "",
    " ",
    "text",
    "{",
    "{{",
    "{{}}",
    "{% x %}",
    "{{ x }}",
    "%s",
    "${x}",
    "\0",
    "\ud800",
    "{" * 5000,
    "(" * 2**21,
)
"""Texts that may stand where a template is expected."""

_TOKENS = ("<|kit|>", "<|kit_end|>", "</kit>")
_WORD = "harmless"
_SECONDS = 0.1
_PATIENCE = 20
_LONG = 5000
_TOGETHER = 8


def samples_are_rendered(subject: Subject) -> None:
    """The conversations of its samples give their texts, and the variables that the samples name are told."""
    for engine, sample in _engines(subject):
        template = _compiled(engine, sample)
        text = _text(template, sample, sample.chat)
        require(text == sample.text, f"'{sample.name}' is rendered as {text!r:.300}")
        missing = sorted(sample.reads - set(template.variables))
        require(not missing, f"'{sample.name}': its variables lack {missing}")
        told = template.content_format
        require(told in ("string", "openai"), f"'{sample.name}': its content format is {told!r}")


def refusals_are_request_errors(subject: Subject) -> None:
    """A refusal is a `RequestError` with words, of a source that is none a `ValueError`; nothing else is raised."""
    for engine, sample in _engines(subject):
        template = _compiled(engine, sample)
        short = _compiled(engine, sample, max_chars=len(sample.text) - 1)
        refused = [(template, chat) for chat in sample.refused] + [(short, sample.chat)]
        for one, chat in refused:
            what = "too long a prompt" if one is short else f"{chat.messages!r:.80}"
            try:
                one.pieces(chat)
            except RequestError as error:
                require(400 <= error.status < 500, f"it refuses {what} with status {error.status}")
                require(len(error.message.strip()) > 3, f"it refuses {what} without a word")
            except Exception as error:
                raise Failed(f"it refuses {what} with {type(error).__name__}: {error}") from error
            else:
                raise Failed(f"'{sample.name}': it takes {what}")
        for source in sample.broken:
            require(not _rendered(engine, source, sample), f"it compiles {source!r:.80}, which is no template")
        for source in _SOURCES:
            _rendered(engine, source, sample)


def rendering_ends_at_its_limit(subject: Subject) -> None:
    """A template that takes long ends with a `RenderTimeoutError` when its time is up, a long conversation ends."""
    for engine, sample in _engines(subject):
        long = replace(sample.chat, messages=[*sample.chat.messages] * _LONG, seconds=_SECONDS)
        sources = [(sample.source, long, False)]
        sources += [(sample.slow, replace(sample.chat, seconds=_SECONDS), True)] if sample.slow else []
        for source, chat, endless in sources:
            template = engine.compile(source, _context(sample))
            began = time.thread_time()
            try:
                template.pieces(chat)
            except RenderTimeoutError:
                ended = True
            except RequestError as error:
                require(not endless, f"'{sample.name}': its time is over, and it says {type(error).__name__}: {error}")
                ended = True
            else:
                ended = not endless
            took = time.thread_time() - began
            told = f"'{sample.name}': given {_SECONDS:g} s it takes {took:.2f} s"
            require(took < _PATIENCE * _SECONDS, told)
            require(ended, f"'{sample.name}': a template without an end ends, and tells nobody")


def same_conversation_same_text(subject: Subject) -> None:
    """A conversation gives the same text again, after others and beside them in several threads, and is left alone."""
    for engine, sample in _engines(subject):
        template = _compiled(engine, sample)
        before = deepcopy(_given(sample.chat))
        alone = _text(template, sample, sample.chat)
        for chat in sample.refused:
            try:
                template.pieces(chat)
            except Exception:  # another check's business
                continue
        others = [_saying(sample.chat, f"{_WORD}{number}") for number in range(_TOGETHER)]
        with ThreadPoolExecutor(_TOGETHER) as pool:
            found = list(pool.map(partial(_text, template, sample), [sample.chat, *others] * _TOGETHER))
        mine = set(found[:: len(others) + 1])
        require(mine == {alone}, f"'{sample.name}' is rendered in another way beside others")
        require(_given(sample.chat) == before, f"'{sample.name}': it changes the conversation")


def what_requests_say_stays_text(subject: Subject) -> None:
    """A special token that a message spells is cut, so that it is read as text, and the whole text still shows it."""
    for engine, sample in _engines(subject):
        template = _compiled(engine, sample)
        plain = _text(template, sample, _saying(sample.chat, _WORD))
        require(_WORD in plain, f"'{sample.name}': what its user says is not in the prompt")
        for token in _TOKENS:
            pieces = _pieces(template, sample, _saying(sample.chat, f"a{token}b{token}"))
            require(
                "".join(pieces) == plain.replace(_WORD, f"a{token}b{token}"),
                f"'{sample.name}': of {token!r} in a message the prompt shows {''.join(pieces)!r:.200}",
            )
            whole = [piece for piece in pieces if token in piece]
            require(not whole, f"'{sample.name}': {token!r} of a message is one piece: {whole[:1]!r:.200}")


def _engines(subject: Subject) -> Iterator[tuple[TemplateEngine, TemplateSample]]:
    for sample in subject.need_samples(TemplateSample):
        for options in every_options(subject):
            yield subject.impl()(*own_arguments(subject.descriptor, options)), sample


def _context(sample: TemplateSample, max_chars: int = MAX_PROMPT_CHARS) -> TemplateContext:
    texts = frozenset({*_TOKENS, *(value for value in sample.tokens.values() if isinstance(value, str))})
    return TemplateContext(tokens=sample.tokens, special_texts=texts, max_chars=max_chars)


def _compiled(engine: TemplateEngine, sample: TemplateSample, max_chars: int = MAX_PROMPT_CHARS) -> ChatTemplate:
    try:
        return engine.compile(sample.source, _context(sample, max_chars))
    except ValueError as error:
        raise Failed(f"'{sample.name}' is not compiled: {error}") from error


def _pieces(template: ChatTemplate, sample: TemplateSample, chat: TemplateInput) -> list[str]:
    try:
        pieces = template.pieces(chat)
    except RequestError as error:
        raise Failed(f"it refuses '{sample.name}': {error.message}") from error
    sound = isinstance(pieces, list) and pieces and all(isinstance(piece, str) for piece in pieces)
    require(bool(sound), f"'{sample.name}': it gives {pieces!r:.80}, which is no list of texts")
    return pieces


def _text(template: ChatTemplate, sample: TemplateSample, chat: TemplateInput) -> str:
    return "".join(_pieces(template, sample, chat))


def _given(chat: TemplateInput) -> list[Any]:
    return [list(chat.messages), chat.tools, chat.documents, dict(chat.variables)]


def _saying(chat: TemplateInput, text: str) -> TemplateInput:
    """Return a conversation in which users say `text`."""
    messages = [{**one, "content": text} if one["role"] == "user" else one for one in chat.messages]
    return replace(chat, messages=messages)


def _rendered(engine: TemplateEngine, source: str, sample: TemplateSample) -> bool:
    """Whether a source is taken for a template."""
    try:
        template = engine.compile(source, _context(sample))
    except ValueError as error:
        require(len(str(error).strip()) > 3, f"it says nothing of the source {source!r:.80}")
        return False
    except Exception as error:
        raise Failed(f"the source {source!r:.80} ends with {type(error).__name__}: {error}") from error
    try:
        template.pieces(replace(sample.chat, seconds=_SECONDS))
    except RequestError:
        pass
    except Exception as error:
        raise Failed(f"the template {source!r:.80} ends with {type(error).__name__}: {error}") from error
    return True


CHECKS = checks(
    samples_are_rendered,
    refusals_are_request_errors,
    rendering_ends_at_its_limit,
    same_conversation_same_text,
    what_requests_say_stays_text,
)
