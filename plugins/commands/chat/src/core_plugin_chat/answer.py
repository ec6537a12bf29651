"""How an answer is shown while it comes: as it is, or as Markdown on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TextIO

from core_plugin_chat.text import printable
from core_plugin_chat.waiting import REFRESHES, Waiting, spinner

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live
    from rich.spinner import Spinner

_DIM, _RESET = "\x1b[2m", "\x1b[0m"


class View(Protocol):
    """Shows one answer. `close` is called once, whatever happened; `pause` and `resume` around a suspension."""

    def reasoning(self, text: str) -> None: ...

    def text(self, text: str) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self, note: str = "") -> None: ...


def open_view(*, markdown: bool, reasoning: bool) -> View:
    """Return the view for standard output: Markdown, and the sign of waiting, need a terminal that moves its cursor."""
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if markdown and terminal:
        return MarkdownView(reasoning=reasoning)
    return PlainView(sys.stdout, reasoning=reasoning, waiting=Waiting(sys.stdout) if terminal else None)


class PlainView:
    """Prints the text as it is. What is no part of the answer, reasoning and notes, is shown on a terminal alone.

    Args:
        waiting: Drawn until there is something to print; None for nothing.
    """

    def __init__(self, stream: TextIO, *, reasoning: bool, waiting: Waiting | None = None) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._reasons = reasoning and self._terminal
        self._dim, self._reset = (_DIM, _RESET) if _coloured(stream) else ("", "")
        self._thinking = False
        self._waiting = waiting
        self.resume()

    def reasoning(self, text: str) -> None:
        """Print reasoning dimly, or not at all."""
        if self._reasons:
            self._write(("" if self._thinking else self._dim) + printable(text))
            self._thinking = True

    def text(self, text: str) -> None:
        """Print a part of the answer."""
        self._write(self._end_thinking("\n\n") + printable(text))

    def pause(self) -> None:
        """Leave the terminal in its own colour, and nothing that moves."""
        if self._waiting is not None:
            self._waiting.stop()
        if self._thinking:
            self._write(self._reset)

    def resume(self) -> None:
        """Go on in the colour of what was written last, or to wait."""
        if self._waiting is not None:
            self._waiting.start()
        if self._thinking:
            self._write(self._dim)

    def close(self, note: str = "") -> None:
        """End the line, with a note on how the answer ended."""
        shown = f" [{note}]" if note and self._terminal else ""
        self._write(f"{self._end_thinking('')}{shown}\n")

    def _end_thinking(self, gap: str) -> str:
        if not self._thinking:
            return ""
        self._thinking = False
        return self._reset + gap

    def _write(self, text: str) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None
        self._stream.write(text)
        self._stream.flush()


class MarkdownView:
    """Draws Markdown as it grows: blocks that are complete stay, the last one is drawn anew until it is complete.

    Until there is something to show, a sign says that it is waited for.
    Only the end of a last block that is higher than the terminal is visible until then.
    """

    def __init__(self, *, reasoning: bool, console: Console | None = None) -> None:
        from rich.console import Console

        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._reasons = reasoning
        self._rest = ""
        self._render: Callable[[str], RenderableType] = _markdown
        self._kept = False
        self._waiting: Spinner | None = spinner(self._console)
        self._live = self._drawing()
        self._live.start()

    def reasoning(self, text: str) -> None:
        """Show reasoning dimly, or not at all."""
        if not self._reasons:
            return
        self._waiting = None
        self._switch(_thought)
        done, found, rest = (self._rest + printable(text)).rpartition("\n")
        if found:
            self._rest = rest
            self._keep(done, gap=False)
        else:
            self._rest = rest

    def text(self, text: str) -> None:
        """Show a part of the answer."""
        self._waiting = None
        self._switch(_markdown)
        self._rest += printable(text)
        if "\n" in text:  # only a new line begins a block
            done, self._rest = complete_blocks(self._rest)
            for block in done:
                self._keep(block)

    def pause(self) -> None:
        """Take away the last block, and show the cursor."""
        self._live.stop()

    def resume(self) -> None:
        """Draw the last block again, wherever the cursor is now."""
        self._live = self._drawing()
        self._live.start(refresh=True)

    def close(self, note: str = "") -> None:
        """Leave the whole answer on the terminal, with a note on how it ended."""
        from rich.text import Text

        rest, self._rest, self._waiting = self._rest, "", None
        self._live.stop()
        for block in blocks(rest) if self._render is _markdown else [rest]:
            self._keep(block)
        if note:
            self._console.print(Text(f"[{note}]", style="dim"))

    def _drawing(self) -> Live:
        """Return what draws the last block, to be started."""
        from rich.live import Live

        return Live(console=self._console, get_renderable=self._draw, refresh_per_second=REFRESHES, transient=True)

    def _switch(self, render: Callable[[str], RenderableType]) -> None:
        if self._render is not render:
            rest, self._rest = self._rest, ""
            self._keep(rest, gap=self._render is _markdown)
            self._render = render

    def _keep(self, text: str, *, gap: bool = True) -> None:
        """Leave a part on the terminal; what follows is drawn below it."""
        from rich.console import Group
        from rich.text import Text

        if not text.strip():
            return
        gaps = [Text("")] if gap and self._kept else []
        self._kept = True
        self._console.print(Group(*gaps, _Part(self._render(text))))
        if self._live.is_started:
            self._live.refresh()  # at once: until then what has just been left stands below a second time

    def _draw(self) -> RenderableType:
        return self._waiting or _Part(self._render(self._rest), tail=True)


class _Part:
    """Something without the empty lines around it; as a tail, only as much of its end as the terminal has lines."""

    def __init__(self, whole: RenderableType, *, tail: bool = False) -> None:
        self._whole = whole
        self._tail = tail

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        lines = console.render_lines(self._whole, options, pad=False)
        filled = [index for index, line in enumerate(lines) if any(segment.text.strip() for segment in line)]
        lines = lines[filled[0] : filled[-1] + 1] if filled else []
        if self._tail:
            lines = lines[-max(1, console.height - 2) :]
        for line in lines:
            yield from line
            yield Segment.line()


def complete_blocks(text: str) -> tuple[list[str], str]:
    """Return the blocks that nothing that follows can change, and the rest of a text that still grows."""
    lines, end, line = text.rpartition("\n")  # of a line that goes on, it is not known yet what it begins
    *done, last = blocks(lines + end)
    return done, last + line


def blocks(text: str) -> list[str]:
    """Split Markdown into its blocks."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt().enable("table").parse(text)
    starts = sorted({token.map[0] for token in tokens if token.level == 0 and token.map} - {0})
    lines = text.splitlines(keepends=True)
    return ["".join(lines[start:end]) for start, end in zip([0, *starts], [*starts, len(lines)])]


def _markdown(text: str) -> RenderableType:
    from rich.markdown import Markdown

    # Addresses are printed: a link whose text says something else than its target must show.
    return Markdown(text, code_theme="ansi_dark", hyperlinks=False)


def _thought(text: str) -> RenderableType:
    from rich.text import Text

    return Text(text, style="dim")


def _coloured(stream: TextIO) -> bool:
    """Whether a stream is a terminal and the user has not asked for plain text."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
