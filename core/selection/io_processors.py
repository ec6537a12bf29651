"""Choosing the I/O processor: whom the user names, or whom the checkpoint's configuration names."""

from __future__ import annotations

from core.api.verdict import Verdict
from core.api.weights import CheckpointInfo
from core.plugins.drivers import Candidate
from core.plugins.kinds import IO_PROCESSOR
from core.selection.select import NONE, Selector, is_auto

CHECKPOINT_KEY = "io_processor_plugin"
"""Where a checkpoint's configuration names the processor that it was made for."""


def choose_io_processor(
    selector: Selector, ask: str | None, checkpoint: CheckpointInfo, *, driven: bool
) -> list[Candidate]:
    """Return the processor, or nothing where there is none to be.

    Args:
        ask: A name; `none`; None or `auto` for the checkpoint's, which a model that generates has no use for.
        driven: Whether the engine's task calls one.

    Raises:
        PluginError: The one that was named cannot be had, or the model generates.
    """

    def pools(_: Candidate) -> Verdict:
        return Verdict.of("the model generates; --runner pooling makes it pool" if not driven else None)

    if is_auto(ask):
        named = checkpoint.config.get(CHECKPOINT_KEY)
        ask = named if isinstance(named, str) and named and driven else NONE
    if ask == NONE:
        return []
    return [selector.choose(IO_PROCESSOR, ask, check=pools)]
