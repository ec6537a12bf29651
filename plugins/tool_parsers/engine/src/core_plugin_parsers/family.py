"""Families of output formats, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from core.api import ParserContext
from core_plugin_parsers.machine import Machine
from core_plugin_parsers.prose import Prose
from core_plugin_parsers.reader import CallForm
from core_plugin_parsers.tags import Finder

KINDS = frozenset({"tools", "reasoning"})
"""What a family may be asked to read."""


@dataclass(frozen=True)
class Block:
    """A stretch of the output that begins with a tag.

    Attributes:
        opens: Tags that begin it.
        holds: What it is: prose of a kind, or calls in a form, which then knows by itself where the block ends.
        closes: Tags that end a block of prose. Without one it runs to the next block or to the end of the message.
        within: Kinds of prose in which its tag is seen. Calls that may end an unfinished thought say so here.
    """

    opens: tuple[str, ...]
    holds: Prose | CallForm
    closes: tuple[str, ...] = ()
    within: tuple[Prose, ...] = (Prose.TEXT,)

    @property
    def reads(self) -> str:
        """What this is part of; tags around shown text go with the thinking that they part it from."""
        return "reasoning" if isinstance(self.holds, Prose) else "tools"


@dataclass(frozen=True)
class Family:
    """A format of messages. Calling it with a `ParserContext` gives a parser for one message.

    White space around a block belongs to nobody. What looks like a call but is not is text.

    Attributes:
        blocks: Stretches with tags.
        bare: Calls without a tag, which are the whole message: tried where the message begins with one of
            `bare_heads`.
        begins: What a message begins with; a request whose prompt opened the thinking begins with that.
        drops: Tags that mean nothing and are not shown.
    """

    blocks: tuple[Block, ...] = ()
    bare: CallForm | None = None
    bare_heads: str = ""
    begins: Prose = Prose.TEXT
    drops: tuple[str, ...] = ()

    def __call__(self, ctx: ParserContext) -> Machine:
        return Machine(self._reading[ctx.reads & KINDS], ctx)

    @cached_property
    def _reading(self) -> dict[frozenset[str], Family]:
        """This family, by what is read of it."""
        return {reads: self._only(reads) for reads in (KINDS, *map(frozenset, ((), ("tools",), ("reasoning",))))}

    def _only(self, reads: frozenset[str]) -> Family:
        if reads == KINDS:
            return self
        return replace(
            self,
            blocks=tuple(block for block in self.blocks if block.reads in reads),
            bare=self.bare if "tools" in reads else None,
            begins=self.begins if "reasoning" in reads else Prose.TEXT,
        )

    @cached_property
    def finders(self) -> dict[Prose, Finder]:
        """The tags that are seen in each kind of prose."""
        return {prose: Finder((*self.opening[prose], *self._closing(prose), *self.drops)) for prose in Prose}

    @cached_property
    def opening(self) -> dict[Prose, dict[str, Block]]:
        """The blocks that begin in each kind of prose, by tag."""
        return {
            prose: {tag: block for block in self.blocks if prose in block.within for tag in block.opens}
            for prose in Prose
        }

    def _closing(self, prose: Prose) -> tuple[str, ...]:
        return tuple(tag for block in self.blocks if block.holds is prose for tag in block.closes)
