"""`core rm MODEL`: take models out of the cache of the source that fetched them."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from core.api.errors import CheckpointError, ConfigError, CoreError
from core.cli.models.common import WHICH, add_flags, opened, tell
from core.config.flags import add_plugin_flag

if TYPE_CHECKING:
    from core.config.resolved import Options
    from core.plugins.select import Selector
    from core.plugins.stores import Kept


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "rm",
        help="Remove a model from the hub's cache.",
        description="Remove models that `core ls` lists, all their revisions or --revision alone. Only what a source "
        "fetched is removed, with packed weights that are kept of it (MODEL:packed: these alone), never a directory of "
        "your own.",
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="As `core ls` prints it.")
    parser.add_argument("-y", "--yes", action="store_true", help="Do not ask.")
    add_plugin_flag(parser)  # says where weight stores keep things
    add_flags(parser, WHICH)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Remove them; status 1 if the user says no."""
    from core.config.sizes import format_size
    from core.plugins.stores import access_of, kept_models, kept_weights

    options, selector = opened(args)
    every = [*kept_models(selector, access_of(options.hub), tell), *kept_weights(selector, tell)]
    chosen: list[Kept] = []
    for name in args.models:
        chosen += [kept for kept in _meant(every, name, options, selector) if kept not in chosen]
    for kept in chosen:
        _require_removable(kept)
    if not args.yes and not _confirmed(chosen):
        return 1
    for kept in chosen:
        print(f"removed {_named(kept)}, {format_size(kept.remove())} freed")
    return 0


def _meant(every: list[Kept], name: str, options: Options, selector: Selector) -> list[Kept]:
    """Return the models of a name: all of a repository's, or one; raises if there is none."""
    revision = options.model.revision or ""
    found = [kept for kept in every if kept.model.reference == name or kept.model.reference.startswith(f"{name}:")]
    found = found or _resolved(every, name, options, selector)
    found = [kept for kept in found if (kept.model.revision or "").startswith(revision)]
    if not found:
        at = f" at revision '{revision}'" if revision else ""
        raise CheckpointError("CORE-M176", f"no model '{name}'{at} is kept on this machine.", hint="See `core ls`.")
    return found


def _resolved(every: list[Kept], name: str, options: Options, selector: Selector) -> list[Kept]:
    """Return what another spelling leads to."""
    from dataclasses import replace

    from core.plugins.checkpoints import find_files
    from core.plugins.stores import access_of

    access = replace(access_of(options.hub), offline=True)
    with suppress(CoreError):
        _, files = find_files(selector, options.select.model_source, name, options.model.revision, access)
        return [kept for kept in every if kept.model.path == files.path]
    return []


def _require_removable(kept: Kept) -> None:
    if not kept.removable:
        raise CheckpointError(
            "CORE-M177",
            f"the model '{kept.model.reference}' was not fetched by core: it came with an installed distribution.",
            hint=f"Uninstall the distribution that holds {kept.model.path}.",
        )


def _confirmed(chosen: list[Kept]) -> bool:
    from core.config.sizes import format_size

    if not sys.stdin.isatty():
        raise ConfigError("CORE-C186", "nobody is there to say whether the models may go.", hint="Give --yes.")
    for kept in chosen:
        print(f"{_named(kept)}  {format_size(kept.model.num_bytes)}  {kept.model.path}")
    try:
        return input("Remove? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        print()
        return False


def _named(kept: Kept) -> str:
    return kept.model.reference + (f"@{kept.model.revision[:12]}" if kept.model.revision else "")
