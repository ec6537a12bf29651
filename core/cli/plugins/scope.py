"""Which plugins an action sees: flags, `CORE_*` variables and the file say it as they do for `serve`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from core.api.errors import ConfigError

if TYPE_CHECKING:
    from core.config.parser import CoreParser
    from core.config.resolved import SelectOptions
    from core.plugins.catalog import Catalogue


def scope_flags(parser: CoreParser) -> None:
    """Add the flags of `serve` that say which plugins there are."""
    from core.config.flags import add_scope_flags

    add_scope_flags(parser)


def option_flags(parser: CoreParser, *, positional_model: bool = False) -> None:
    """Add all flags of `serve`, for an action that chooses as it does."""
    from core.config.flags import add_option_flags

    add_option_flags(parser, positional_model=positional_model)


def selection(args: argparse.Namespace) -> SelectOptions:
    """Return what the command line, the environment and the file say of plugins.

    A wrong setting elsewhere must not hide the plugins: it is told, and then this command line decides alone.

    Raises:
        ConfigError: The command line, or the file that it names, has a value that is not allowed.
    """
    from core.config.load import load_options

    try:
        return load_options(args).options.select
    except ConfigError as error:
        select = load_options(args, {}).options.select
        print(f"warning: {error}", file=sys.stderr)
        return select


def visible(args: argparse.Namespace) -> Catalogue:
    """Return the catalogue that an action works on; plugin files are executed.

    Raises:
        ConfigError: A flag has a value that is not allowed.
        PluginError: A plugin file cannot be used.
    """
    from core.selection.scope import open_scope

    return open_scope(selection(args))[0]
