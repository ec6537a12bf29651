"""Families of output formats, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from core.api import CallGrammar, ParserContext, ThinkingTags
from core_plugin_parsers.headers import Headers
from core_plugin_parsers.json_calls import JsonCalls
from core_plugin_parsers.machine import Machine
from core_plugin_parsers.prose import Prose
from core_plugin_parsers.reader import CallForm
from core_plugin_parsers.tags import Finder
from core_plugin_parsers.written import GENERAL, Written, function_of, loosened, tag_text

KINDS = frozenset({"tools", "reasoning"})
"""Kinds of output that a family may be asked to read."""

_NAME = re.compile(r"[\w.-]{1,256}", re.ASCII)
"""Names of tools that every family has a place for."""

_TAIL_TOKENS = 48
"""More than any tag has, even where every byte is a token."""


@dataclass(frozen=True)
class Block:
    """A stretch of the output that begins with a tag.

    Attributes:
        opens: Tags that begin it.
        holds: What it is: prose of a kind, or calls in a form, which then knows by itself where the block ends.
        closes: Tags that end a block of prose. Without one it runs to the next block or to the end of the message.
        within: Kinds of prose in which its tag is seen. Without any: prose begins in shown text, calls begin in the
            thinking too, which they end.
        tag_is_content: The tag is the beginning of what the block holds.
    """

    opens: tuple[str, ...]
    holds: Prose | CallForm
    closes: tuple[str, ...] = ()
    within: tuple[Prose, ...] = ()
    tag_is_content: bool = False

    @property
    def seen_in(self) -> tuple[Prose, ...]:
        """Kinds of prose in which the block may begin."""
        if self.within:
            return self.within
        return (Prose.TEXT,) if isinstance(self.holds, Prose) else (Prose.TEXT, Prose.REASONING)

    @property
    def reads(self) -> frozenset[str]:
        """Kinds of output that this is part of; tags around shown text go with the thinking that they part it from."""
        if isinstance(self.holds, Headers):
            return KINDS
        return frozenset({"reasoning"} if isinstance(self.holds, Prose) else {"tools"})

    def only(self, reads: frozenset[str]) -> Block:
        """Return the block where only this is read."""
        if isinstance(self.holds, Headers) and "reasoning" not in reads:
            return replace(self, holds=self.holds.shown())
        return self

    @property
    def opens_thought(self) -> tuple[str, ...]:
        """Texts that a prompt which has opened the thinking ends with."""
        if isinstance(self.holds, Headers):
            return tuple(text + self.holds.ends for text, kind in self.holds.kinds.items() if kind is Prose.REASONING)
        return self.opens if self.holds is Prose.REASONING else ()


@dataclass(frozen=True)
class Family:
    """A format of messages. Calling it with a `ParserContext` gives a parser for one message.

    White space around a block belongs to nobody. What looks like a call but is not is text.

    Attributes:
        blocks: Stretches with tags.
        bare: Calls without a tag, which are the whole message: tried where the message begins with one of
            `bare_heads`.
        bare_anywhere: They may also stand behind text.
        begins: What a message begins with, where the prompt does not say: one whose end opened the thinking, or
            closed it, decides.
        drops: Tags that mean nothing and are not shown.
        written: How its calls are written, for grammars that enforce them.
        shows: What clients want to see of the message although the prompt ends with it.
    """

    blocks: tuple[Block, ...] = ()
    bare: CallForm | None = None
    bare_heads: str = ""
    bare_anywhere: bool = False
    begins: Prose = Prose.TEXT
    drops: tuple[str, ...] = ()
    written: Written | None = None
    shows: str = ""

    def __call__(self, ctx: ParserContext) -> Machine:
        family = self._reading[ctx.reads & KINDS]
        shown = family.shows if family.shows and _tail(ctx).endswith(family.shows) else ""
        return Machine(family, ctx, family._beginning(ctx), shown)

    def _beginning(self, ctx: ParserContext) -> Prose:
        """Return what this request's message begins with."""
        tail = _tail(ctx)
        opens = tuple(tag for block in self.blocks for tag in block.opens_thought)
        if not opens or tail.endswith(self._closing(Prose.REASONING)):
            return Prose.TEXT
        if ctx.in_reasoning or tail.endswith(opens):
            return Prose.REASONING
        return self.begins if ctx.thinks else Prose.TEXT

    def thinking(self, ctx: ParserContext) -> ThinkingTags | None:
        """Return where this request's thinking begins and ends; None if it has none."""
        shown = tuple(block.opens[0] for block in self.blocks if block.holds is Prose.TEXT and block.opens)
        return self._thinking(ctx, shown)

    def _thinking(self, ctx: ParserContext, shown: tuple[str, ...]) -> ThinkingTags | None:
        """Return where the thinking is; where what follows has a tag too, it is this tag that ends the thinking."""
        thought = next((block for block in self.blocks if block.holds is Prose.REASONING and block.closes), None)
        if thought is None:
            return None
        if shown:
            return ThinkingTags(shown[0], open=True)
        opened = self._beginning(ctx) is Prose.REASONING
        closed = _tail(ctx).endswith(thought.closes) or not ctx.thinks
        return None if closed and not opened else ThinkingTags(thought.closes[0], thought.opens[0], opened)

    def forced(self, ctx: ParserContext, tools: Sequence[Mapping[str, Any]], *, many: bool) -> CallGrammar:
        """Return the grammar of an answer that calls one of `tools`, or several times.

        Names that the family's own form has no place for, and forms that grammars cannot say, are written as a list.
        The grammar waits for the end of the thinking, so that nothing else ends it.
        """
        written, make = self.written, self._calling_when_shown
        if written is None or not all(_NAME.fullmatch(str(function_of(tool).get("name"))) for tool in tools):
            thoughts = tuple(block for block in self.blocks if block.holds is Prose.REASONING)
            make = Family(thoughts, bare=JsonCalls(), bare_heads="[", begins=self.begins, drops=self.drops)
            written = GENERAL
        form = written.calls(tools, many=many)
        return CallGrammar("structural_tag", tag_text(form), make, make._thinking(ctx, ()))

    def strict(self, ctx: ParserContext, tools: Sequence[Mapping[str, Any]], *, many: bool) -> CallGrammar | None:
        """Return the grammar of an answer in which calls, if there are any, follow the tools' schemas.

        A tool that does not ask for it (`strict`) may be called with any object. None where calls have no tag.
        """
        if self.written is None:
            return None
        loose = [tool if function_of(tool).get("strict") else loosened(tool) for tool in tools]
        tags = self.written.tags(loose, many=many)
        seen = [*self.drops, *(tag for block in self.blocks for tag in block.opens)]
        triggers = [tag for tag in seen if tags and tags[0]["begin"].startswith(tag)]
        if not triggers:
            return None
        form = {"type": "triggered_tags", "triggers": triggers[:1], "tags": tags}
        return CallGrammar("structural_tag", tag_text(form), self, self._thinking(ctx, ()))

    @cached_property
    def _calling_when_shown(self) -> Family:
        """This family without calls in the thinking."""
        prose = tuple(block for block in self.blocks if isinstance(block.holds, Prose | Headers))
        calls = (replace(block, within=(Prose.TEXT,)) for block in self.blocks if block not in prose)
        return replace(self, blocks=(*prose, *calls), bare_anywhere=False)

    @cached_property
    def _reading(self) -> dict[frozenset[str], Family]:
        """This family, by what is read of it."""
        return {reads: self._only(reads) for reads in (KINDS, *map(frozenset, ((), ("tools",), ("reasoning",))))}

    def _only(self, reads: frozenset[str]) -> Family:
        if reads == KINDS:
            return self
        return replace(
            self,
            blocks=tuple(block.only(reads) for block in self.blocks if block.reads & reads),
            bare=self._bare_of(reads),
            begins=self.begins if "reasoning" in reads else Prose.TEXT,
            drops=self.drops if reads else (),
        )

    def _bare_of(self, reads: frozenset[str]) -> CallForm | None:
        if isinstance(self.bare, Headers) and reads:
            return self.bare if "reasoning" in reads else self.bare.shown()
        return self.bare if "tools" in reads else None

    @cached_property
    def finders(self) -> dict[Prose, Finder]:
        """The tags that are seen in each kind of prose."""
        return {prose: Finder((*self.opening[prose], *self._closing(prose), *self.drops)) for prose in Prose}

    @cached_property
    def late_finder(self) -> Finder:
        """The tags that are seen in shown text behind a call that ended the thinking: also the thinking's own end."""
        return Finder((*self.finders[Prose.TEXT].literals, *self._closing(Prose.REASONING)))

    @cached_property
    def opening(self) -> dict[Prose, dict[str, Block]]:
        """The blocks that begin in each kind of prose, by tag."""
        blocks = self.blocks
        if self.bare is not None and self.bare_anywhere:
            blocks = (*blocks, Block(tuple(self.bare_heads), self.bare, tag_is_content=True))
        return {
            prose: {tag: block for block in blocks if prose in block.seen_in for tag in block.opens} for prose in Prose
        }

    def _closing(self, prose: Prose) -> tuple[str, ...]:
        return tuple(tag for block in self.blocks if block.holds is prose for tag in block.closes)


def _tail(ctx: ParserContext) -> str:
    """Return the end of the prompt, as far as a tag may reach."""
    if ctx.tokenizer is None or not ctx.prompt_ids:
        return ""
    return ctx.tokenizer.decode(ctx.prompt_ids[-_TAIL_TOKENS:], skip_special_tokens=False).rstrip()
