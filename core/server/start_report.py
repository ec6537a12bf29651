"""The start-up report: what was chosen, how long it took, and how to talk to the server."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.logs import tell
from core.plugins.kinds import KERNEL, LOADER, MODEL, PLATFORM, QUANTIZATION, SOURCE, every_kind
from core.plugins.options import shown
from core.server.registry import reachable
from core.terminal.tables import clean, table

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.plugins.plan import PlannedPlugin
    from core.selection.resolver import Resolution


Row = tuple[str, str, str]
"""A decision: its subject, its value, and its origin: `set` (the user), `auto`, or the plugin that changed it."""

_ELSEWHERE = (PLATFORM, SOURCE, LOADER, MODEL, QUANTIZATION, KERNEL)
"""Kinds that the rows of the model name, and kernels, which layers choose when they are built."""

_MANY = 2
"""Of more plugins of a kind the start tells the names alone."""


def choices_rows(config: EngineConfig) -> list[Row]:
    """Return the decisions as rows."""
    return [*_model_rows(config), *_plugin_rows(config), *_size_rows(config)]


def all_choices(resolution: Resolution) -> list[Row]:
    """Return the decisions, with what plugins changed of them, as rows."""
    changes = [(patch.path, f"{patch.after} ({patch.reason})", patch.owner) for patch in resolution.patches]
    return [*choices_rows(resolution.config), *changes]


def choices_table(resolution: Resolution) -> str:
    """Return the one table that says what was chosen."""
    return table(("what", "chosen", "by"), all_choices(resolution))


def show_choices(resolution: Resolution) -> None:
    """Print what was chosen: the table, or a record."""
    rows = [dict(zip(("what", "chosen", "by"), row, strict=True)) for row in all_choices(resolution)]
    tell(choices_table(resolution), {"event": "choices", "choices": rows}, message="what was chosen")


def timeline(phases: Sequence[tuple[str, float]]) -> str:
    """Return `started in 1.84 s: probe 0.02, weights 1.20, ...`; phases are in seconds."""
    total = sum(seconds for _, seconds in phases)
    return f"started in {total:.2f} s: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in phases)


def started_text(facts: Mapping[str, str], phases: Sequence[tuple[str, float]]) -> str:
    """Return what the worker found and allocated, and how long each phase of the start took, as far as it is known."""
    found = [table(("resource", "found"), list(facts.items()))] if facts else []
    return "\n".join([*found, *([timeline(phases)] if phases else [])])


def show_ready(
    banner: str, url: str, model_name: str, facts: Mapping[str, str], phases: Sequence[tuple[str, float]]
) -> None:
    """Print how the start went, and below it the banner of `ready_text`; or both as a record."""
    first, _, example = banner.partition("\n")
    seconds = {name: round(seconds, 3) for name, seconds in phases}
    found = {"event": "ready", "url": url, "model": model_name, "resources": dict(facts), "seconds": seconds}
    text = "\n".join(filter(None, (started_text(facts, phases), banner)))
    tell(text, {**found, "example": example}, message=first)


CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]})


def ready_text(
    url: str, model_name: str, *, api_key: bool = False, example: tuple[str, Mapping[str, Any]] = CHAT
) -> str:
    """Return the address, the model and a request to copy.

    Args:
        url: `http://HOST:PORT`, or `unix:PATH` for a socket.
        api_key: Whether requests need a key; the command then takes it from `$CORE_API_KEY`.
        example: Path and body of the request.
    """
    path, fields = example
    body = json.dumps({"model": model_name, **fields}, ensure_ascii=False)
    socket, base = ("", url.rstrip("/"))
    if url.startswith("unix:"):
        socket, base = f" --unix-socket {shlex.quote(url.removeprefix('unix:'))}", "http://localhost"
    base = reachable(base)
    key = ' -H "Authorization: Bearer $CORE_API_KEY"' if api_key else ""
    return (
        f"ready: {clean(model_name)} at {url}\n"
        f"curl{socket} {shlex.quote(base + path)}{key} -H 'Content-Type: application/json' "
        f"-d {shlex.quote(body)}"
    )


def _model_rows(config: EngineConfig) -> list[Row]:
    checkpoint, select = config.checkpoint, config.options.select
    method = config.plan.one("core.quantization")
    settled = f": {shown(method.options)}" if method and method.options else ""
    chosen = config.options.model.model is not None
    return [
        ("platform", _names(config.plan.of("core.platforms")), _by(select.platform)),
        ("model", f"{config.files.name} ({config.files.path})", "set" if chosen else "default"),
        ("architecture", _with(checkpoint.architecture, config.plan.one("core.models")), _by(select.model_impl)),
        ("checkpoint", _with(checkpoint.format, config.plan.one("core.weight_loaders")), _by(select.load_format)),
        ("quantization", _with(checkpoint.quantization, method) + settled, _by(select.quantization)),
    ]


def _plugin_rows(config: EngineConfig) -> list[Row]:
    rows = []
    for kind in every_kind().values():
        chosen = config.plan.of(kind.group)
        if chosen and kind not in _ELSEWHERE:
            rows.append((kind.label, _names(chosen), _by(any(_asked(config, option) for option in kind.options))))
    return rows


def _asked(config: EngineConfig, option: str) -> bool:
    return getattr(config.options.select, option) not in (None, "auto", [])


def _size_rows(config: EngineConfig) -> list[Row]:
    model, kv, scheduler = config.options.model, config.options.kv, config.options.scheduler
    caching = "prefix caching" if kv.prefix_caching else "no prefix caching"
    if config.shape.recurrent:
        caching = "no prefix caching: the model keeps recurrent states"
    sized = {"kv_memory", "memory_fraction", "num_blocks"} & kv.model_fields_set
    return [
        ("dtype", config.dtype, "auto" if model.dtype == "auto" else "set"),
        ("context", _context(config), _by(model.max_model_len)),
        ("KV cache", f"{_kv_size(config)}, {config.kv_dtype}, blocks of {config.block_size}, {caching}", _by(sized)),
        (
            "batch",
            f"{scheduler.max_num_seqs} requests, {config.step_tokens} tokens a step",
            _by({"max_num_seqs", "max_num_batched_tokens"} & scheduler.model_fields_set),
        ),
    ]


def _context(config: EngineConfig) -> str:
    return f"{'up to ' if config.shortens else ''}{config.max_model_len} tokens"


def _kv_size(config: EngineConfig) -> str:
    kv = config.options.kv
    if kv.num_blocks is not None:
        return f"{kv.num_blocks} blocks"
    whole = "the device's" if config.probe.has("own_memory") else "free"
    return kv.kv_memory or f"{kv.memory_fraction:.0%} of {whole} memory"


def _by(choice: object) -> str:
    return "set" if choice else "auto"


def _names(plugins: Sequence[PlannedPlugin]) -> str:
    """Return what was chosen; of many the names alone, whose distributions `core plugins list` has."""
    if len(plugins) > _MANY:
        return ", ".join(plugin.name for plugin in plugins)
    return ", ".join(map(_plugin, plugins)) or "none"


def _plugin(plugin: PlannedPlugin) -> str:
    return f"{plugin.name} · {plugin.dist} {plugin.version}"


def _with(what: str, plugin: PlannedPlugin | None) -> str:
    return f"{what} ({_plugin(plugin)})" if plugin else what
