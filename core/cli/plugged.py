"""Commands of plugins: `core NAME ...` for an entry point of `core.commands`. Only the one asked for is imported."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from core.api.errors import CoreError, PluginError, RequestError
from core.plugins.catalog import Catalogue, Entry
from core.plugins.kinds import COMMAND


def installed() -> dict[str, Entry]:
    """Return the commands that plugins bring, by name; nothing is imported."""
    return {entry.name: entry for entry in Catalogue.scan().entries(COMMAND.group)}


def register(name: str, subparsers: Any) -> None:
    """Add a plugin's command.

    Raises:
        PluginError: CORE-P102, two distributions provide it; why it cannot be loaded; CORE-P108, it raised.
    """
    from core.config.load import load_options
    from core.plugins.drivers import guarded, instantiate, load_descriptors
    from core.plugins.options import checked_options, given_options

    entry = Catalogue.scan().find(COMMAND.group, name)
    candidates, failures = load_descriptors([entry])
    for failure in failures:
        raise failure.error(f"`core {name}`")
    descriptor = candidates[0].descriptor
    given = load_options(Namespace()).options.runtime.plugin_options if descriptor.options else {}
    command = instantiate(candidates[0], checked_options(candidates[0], given_options(entry, given)))
    parser = subparsers.add_parser(name, help=descriptor.summary, description=descriptor.summary)
    guarded(entry, "register()", command.register, parser)

    def run(args: Any) -> int:
        try:
            return int(command.run(args) or 0)
        except (CoreError, RequestError, KeyboardInterrupt, BrokenPipeError):
            raise
        except Exception as error:
            text = f"command '{name}' ({entry.owner}): run() raised {type(error).__name__}: {error}."
            raise PluginError("CORE-P108", text, hint="--debug shows the traceback.") from error

    parser.set_defaults(run=run)
