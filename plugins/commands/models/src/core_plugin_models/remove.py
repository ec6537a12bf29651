"""`core rm MODEL`: take models out of the cache of the source that fetched them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress

from core.api import (
    CheckpointError,
    CommandHost,
    ConfigError,
    CoreError,
    GivenOptions,
    KeptModel,
    LocalModels,
    Terminal,
)
from core_plugin_models.common import WHICH, tell


class Rm:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.description = (
            "Remove models that `core ls` lists, all their revisions or --revision alone. Only what a source "
            "fetched is removed, with packed weights that are kept of it (MODEL:packed: these alone), never a "
            "directory of your own."
        )
        named = parser.add_argument("models", nargs="+", metavar="MODEL", help="As `core ls` prints it.")
        named.completer = self._complete  # type: ignore[attr-defined]
        parser.add_argument("-y", "--yes", action="store_true", help="Do not ask.")
        self._host.options.add_some(parser, WHICH, of_plugins=True)  # they say where weight stores keep things

    def run(self, args: argparse.Namespace) -> int:
        """Remove them; status 1 if the user says no."""
        models, terminal, options = self._host.models, self._host.terminal, self._host.options.load(args)
        every = models.kept(options, tell)
        chosen: list[KeptModel] = []
        for name in args.models:
            chosen += [kept for kept in _meant(models, options, every, name) if kept not in chosen]
        for kept in chosen:
            _require_removable(kept)
        if not args.yes and not _confirmed(terminal, chosen):
            return 1
        for kept in chosen:
            print(f"removed {_named(kept)}, {terminal.size(kept.remove())} freed")
        return 0

    def _complete(self, prefix: str, **_: object) -> Sequence[str]:
        return self._host.models.complete(prefix)


def _meant(models: LocalModels, options: GivenOptions, every: Sequence[KeptModel], name: str) -> list[KeptModel]:
    """Return the models of a name: all of a repository's, or one; raises if there is none."""
    revision = options.value("model.revision") or ""
    found = [kept for kept in every if kept.model.reference == name or kept.model.reference.startswith(f"{name}:")]
    found = found or _resolved(models, options, every, name)
    found = [kept for kept in found if (kept.model.revision or "").startswith(revision)]
    if not found:
        at = f" at revision '{revision}'" if revision else ""
        raise CheckpointError("CORE-M176", f"no model '{name}'{at} is kept on this machine.", hint="See `core ls`.")
    return found


def _resolved(models: LocalModels, options: GivenOptions, every: Sequence[KeptModel], name: str) -> list[KeptModel]:
    """Return what another spelling leads to."""
    with suppress(CoreError):
        path = models.find(options, name).path
        return [kept for kept in every if kept.model.path == path]
    return []


def _require_removable(kept: KeptModel) -> None:
    if not kept.removable:
        raise CheckpointError(
            "CORE-M177",
            f"the model '{kept.model.reference}' was not fetched by core: it came with an installed distribution.",
            hint=f"Uninstall the distribution that holds {kept.model.path}.",
        )


def _confirmed(terminal: Terminal, chosen: Sequence[KeptModel]) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("CORE-C186", "nobody is there to say whether the models may go.", hint="Give --yes.")
    for kept in chosen:
        print(f"{_named(kept)}  {terminal.size(kept.model.num_bytes)}  {kept.model.path}")
    try:
        return input("Remove? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _named(kept: KeptModel) -> str:
    return kept.model.reference + (f"@{kept.model.revision[:12]}" if kept.model.revision else "")
