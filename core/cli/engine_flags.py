"""The engine's flags for commands that run a model for themselves alone, without an address."""

from __future__ import annotations

import argparse

from core.api.errors import ConfigError
from core.cli.help import add_help_flag
from core.config.flags import FlagValue, add_option_flags
from core.config.load import LoadedOptions, load_options
from core.config.parser import CoreParser

ADDRESS = ("server.host", "server.port", "server.uds")
"""Options that mean nothing to such a command."""


def add_engine_flags(parser: CoreParser, *, positional_model: bool = False) -> None:
    """Add the flag of every option. The parser must have been made with `add_help=False`."""
    add_help_flag(parser, without=ADDRESS)
    add_option_flags(parser, positional_model=positional_model)


def engine_options(args: argparse.Namespace) -> LoadedOptions:
    """Return the options that were given.

    Raises:
        ConfigError: A flag sets an address (CORE-C182), or as `load_options`.
    """
    given = [value for path in ADDRESS if isinstance(value := getattr(args, path, None), FlagValue)]
    if given:
        text = f"flag {given[0].flag} has no meaning here: the model is run for this command alone."
        raise ConfigError("CORE-C182", text, hint="`core serve` listens at an address.")
    return load_options(args)
