"""`core pull MODEL`: fetch a model, so that it can be served at once, and without a network."""

from __future__ import annotations

import argparse

from core.api import CommandHost
from core_plugin_models.common import FETCH


class Pull:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.description = (
            "Fetch a model into the hub's cache. What is there already is not fetched again, and a download "
            "that was interrupted goes on where it was."
        )
        parser.add_argument(
            "model", metavar="MODEL", help="Hub id (organisation/name), or organisation/name:Q4_K_M for one GGUF file."
        )
        self._host.options.add_some(parser, FETCH)

    def run(self, args: argparse.Namespace) -> int:
        """Fetch it and print where it is."""
        models = self._host.models
        files = models.fetch(self._host.options.load(args), args.model)
        size = self._host.terminal.size(sum(models.sizes(files.path).values()))
        print(f"{files.name}: {files.path} ({size}{f', revision {files.revision}' if files.revision else ''})")
        return 0
