"""Content of a KV block besides its tokens: everything else that decides keys and values, in one place.

A store that outlives the engine, or that engines share, finds blocks by their hash alone. So whatever changes keys or
values, or how a block is laid out, is a field of `BlockContent`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api.installed import FILE_PREFIX
from core.api.kvspecs import KVSpec
from core.plugins.code import code_digest
from core.plugins.kinds import ATTENTION, EXECUTOR, KERNEL, LOADER, MODEL, PLATFORM, QUANTIZATION
from core.version import __version__

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.plugins.hooks import Hooks
    from core.plugins.plan import PlannedPlugin

CONTENT_KINDS = (PLATFORM, MODEL, LOADER, QUANTIZATION, ATTENTION, KERNEL, EXECUTOR)
"""Kinds whose plugins read the weights, compute keys and values, or lay them out."""

CONTENT_HOOKS = ("core_layer", "core_model_loaded")
"""Hooks that can change what a layer computes."""

KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class BlockContent:
    """Everything that decides keys and values, and their layout in a block, for every request of an engine.

    Attributes:
        core: Version of core and digest of its code.
        checkpoint: Facts and configuration, with the user's changes of it (`--hf-overrides`, `--rope-scaling`).
        files: Name, size and time of change of the checkpoint's files, and so of weights and scales.
        revision: Of the model, if its source has one.
        dtype, kv_dtype, block_size: As resolved.
        context: The longest request in tokens, where rotary embeddings depend on it.
        plugins: The plan's rows of `CONTENT_KINDS`, and of the hook modules that implement one of `CONTENT_HOOKS`; each
            with its options and the digest of its distribution's code.
        plugin_files: SHA-256 of the plugin files.
        groups: Kind and window of each cache group: which layers share a block.
    """

    core: tuple[str, str]
    checkpoint: Mapping[str, Any]
    files: tuple[tuple[str, int, int], ...]
    revision: str | None
    dtype: str
    kv_dtype: str
    block_size: int
    context: int | None
    plugins: tuple[Mapping[str, Any], ...]
    plugin_files: tuple[str, ...]
    groups: tuple[tuple[str, int | None], ...]

    @classmethod
    def of(cls, config: EngineConfig, hooks: Hooks, groups: Sequence[KVSpec] = (KVSpec(),)) -> BlockContent:
        """Return what the blocks of an engine hold. Raises `PluginError` CORE-P175, a plugin's code cannot be read."""
        drivers = [plugin for kind in CONTENT_KINDS for plugin in config.plan.of(kind.group)]
        wrapping = {(entry.name, entry.dist) for entry in hooks.implementing(*CONTENT_HOOKS)}
        modules = [plugin for plugin in config.plan.hooks if (plugin.name, plugin.dist) in wrapping]
        return cls(
            core=(__version__, code_digest("core")),
            checkpoint=config.checkpoint.model_dump(mode="json"),
            files=_stored(Path(config.files.path)),
            revision=config.files.revision,
            dtype=config.dtype,
            kv_dtype=config.kv_dtype,
            block_size=config.block_size,
            context=config.max_model_len if config.shape.context_bound else None,
            plugins=tuple(_planned(plugin) for plugin in (*drivers, *modules)),
            plugin_files=tuple(file.sha256 for file in config.plan.files),
            groups=tuple((spec.kind, spec.window) for spec in groups),
        )

    def key(self, secret: str) -> bytes:
        """Return the key of block hashes: equal for equal content and an equal secret."""
        seed = blake2b(secret.encode("utf-8", "surrogatepass")).digest()
        content = json.dumps(asdict(self), sort_keys=True).encode()
        return blake2b(content, digest_size=KEY_BYTES, key=seed).digest()


def _planned(plugin: PlannedPlugin) -> Mapping[str, Any]:
    # The bytes of plugin files have a field of their own.
    code = "" if plugin.dist.startswith(FILE_PREFIX) else code_digest(plugin.dist)
    return {**plugin.model_dump(mode="json"), "code": code}


def _stored(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return name, size and time of change of a checkpoint's files: new weights in the old place are new weights."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file())
