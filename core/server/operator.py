"""`core.api.Operator` over what the server serves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from core import logs
from core.api.errors import CoreError
from core.api.operator import RECENT_LINES, CacheFacts, PauseMode
from core.engine.profile import PHASES
from core.server.secrets import HIDDEN, secrets, shown
from core.server.state import ServerState
from core.version import __version__


class ServedOperator:
    """The running server, as whoever runs it sees it."""

    version: str = __version__
    phases: Mapping[str, str] = PHASES

    def __init__(self, state: ServerState) -> None:
        self._state, self._llm = state, state.llm

    @property
    def ready(self) -> bool:
        """Whether new generations are taken."""
        return self._state.ready

    @property
    def paused(self) -> bool:
        """Whether new requests are held back."""
        return self._llm.paused

    @property
    def draining(self) -> bool:
        """Whether the server ends."""
        return self._state.lifecycle.draining

    @property
    def restarts(self) -> int:
        """How often the engine was started again."""
        return self._llm.restarts

    @property
    def lost_weights(self) -> str | None:
        """Version of the updated weights that went with an engine, until new ones come."""
        return self._llm.lost_weights

    @property
    def in_flight(self) -> int:
        """Answers that a drain would wait for."""
        return len(self._state.lifecycle.work)

    @property
    def running(self) -> list[str]:
        """Ids of the answers that have not ended."""
        return list(dict.fromkeys(self._running().values()))

    @property
    def options(self) -> dict[str, Any]:
        """All options by section, without secrets."""
        return shown(self._state.options)

    @property
    def cache(self) -> CacheFacts | None:
        """How the KV cache was made."""
        config = self._llm.config
        if config is None:
            return None
        kv = config.options.kv
        return CacheFacts(config.block_size, config.kv_dtype, kv.prefix_caching, kv.memory_fraction)

    @property
    def weight_transfer(self) -> str | None:
        """Name of the weight-transfer engine."""
        return self._state.options.select.weight_transfer

    async def pause(self, mode: PauseMode = "abort", *, clear_cache: bool = True) -> None:
        """Hold new requests back. Raises as `AsyncLLM.pause_generation`."""
        await self._llm.pause_generation(mode, clear_cache=clear_cache)

    async def resume(self) -> None:
        """Let requests pass again."""
        await self._llm.resume_generation()

    def drain(self) -> None:
        """Begin the server's end."""
        if not self.draining:
            self._state.lifecycle.drain()

    async def abort(self, ids: Collection[str] | None = None) -> list[str]:
        """End answers. Return the ids of those that ran."""
        running = self._running()
        chosen = [name for name, answer in running.items() if ids is None or answer in ids]
        for name in chosen:
            await self._llm.abort(name)
        return list(dict.fromkeys(running[name] for name in chosen))

    async def recent_log(self, limit: int = RECENT_LINES) -> list[dict[str, Any]]:
        """Return the last records, of both processes, without secrets."""
        lines = [*logs.recent(limit), *await self._log_of_engine(limit)]
        lines.sort(key=lambda line: float(line["time"]))
        hidden = secrets(self._state.options)
        return [{**line, "message": _without(hidden, line["message"])} for line in lines[-limit:]]

    def _running(self) -> dict[str, str]:
        """Return the engine's requests, and the id of the answer that each is for."""
        return {name: self._answer_of(name) for name in self._llm.request_ids}

    def _answer_of(self, name: str) -> str:
        """Return the id of the answer that a request in flight belongs to.

        One answer may be several requests: of its prompts, and of the sequences of a beam search, which have numbers
        behind the name.
        """
        base = name
        while base not in self._state.shown:
            base, _, number = base.rpartition("-")
            if not number.isdigit():
                return name
        return self._state.shown[base]

    async def _log_of_engine(self, limit: int) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = await self._llm.call("recent_log", limit) if self._llm.healthy else []
            return found
        except CoreError:
            return []


def _without(hidden: Sequence[str], text: str) -> str:
    """Return a message without these texts, of which the first is the longest."""
    cut = len(text) == logs.RECENT_CHARS
    for secret in hidden:
        text = text.replace(secret, HIDDEN)
    return text[: -len(hidden[0])] if cut and hidden else text  # its end may be a part of one
