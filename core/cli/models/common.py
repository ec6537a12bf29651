"""What the commands about models share: their flags, and the sources that they ask."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from core.config.flags import SCOPE, add_some_flags
from core.config.parser import CoreParser

if TYPE_CHECKING:
    from core.api.errors import CoreError
    from core.config.resolved import Options
    from core.plugins.select import Selector

CACHE = ("hub.download_dir", *SCOPE)
"""Options of a command that looks at what is here."""

WHICH = ("model.revision", "select.model_source", *CACHE)
"""Options that say which model is meant."""

FETCH = ("hub.hf_token", "hub.offline", *WHICH)
"""Options of a command that may ask the hub."""


def add_flags(parser: CoreParser, paths: tuple[str, ...]) -> None:
    """Add the flags of these options, as `core serve` has them."""
    add_some_flags(parser, paths, "configuration", "As for `core serve`; also in the environment and the file.")


def opened(args: argparse.Namespace) -> tuple[Options, Selector]:
    """Return the options that were given, and what chooses among the plugins that they allow. Raises `CoreError`."""
    from core.config.load import load_options
    from core.plugins.hooks import Hooks
    from core.plugins.scope import open_scope
    from core.plugins.select import Selector

    options = load_options(args).options
    return options, Selector(open_scope(options.select)[0], Hooks(), options=options.runtime.plugin_options)


def tell(error: CoreError) -> None:
    """Print why a part of the answer is missing."""
    import sys

    print(f"core: {error}", file=sys.stderr)
