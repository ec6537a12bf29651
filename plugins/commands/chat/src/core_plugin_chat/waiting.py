"""The sign that an answer is being waited for: it moves, and is gone with the first text."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

REFRESHES = 10
"""Drawings per second."""


def spinner(console: Console) -> Spinner:
    """Return what is drawn; a terminal that is not of UTF-8 gets ASCII."""
    from rich.spinner import Spinner

    return Spinner("dots" if console.encoding.startswith("utf") else "line", "waiting", style="dim")


class Waiting:
    """Draws the sign where the cursor is, from `start` to `stop`; both may be called again.

    Args:
        stream: A terminal that can move its cursor.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live: Live | None = None

    def start(self) -> None:
        """Begin to draw."""
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            console = Console(file=self._stream)
            drawn = spinner(console)
            self._live = Live(drawn, console=console, refresh_per_second=REFRESHES, transient=True)
            self._live.start()

    def stop(self) -> None:
        """Take it away."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
