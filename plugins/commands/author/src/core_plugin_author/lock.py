"""`core plugins lock`: write down what a start chooses."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.api import CommandHost, InstalledPlugin, PluginError, StartChoice


class Lock:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments: those of `serve`."""
        parser.description = (
            "Choose as `serve` would for a model, print the choices, and write them to a lock file with the versions "
            "and the code's digests of every distribution."
        )
        parser.add_argument("file", metavar="FILE", help="File to write (JSON).")
        self._host.options.add(parser, positional_model=True)

    def run(self, args: argparse.Namespace) -> int:
        """Choose, write the file, and print what was chosen."""
        # The file that is being written again must not be held against what it will say.
        options = self._host.options.load(args).changed({"select.plugins_lock": None})
        choice = self._host.plugins.choose(options)
        if choice.error is not None:
            raise choice.error
        _write(args.file, choice)
        print(f"{choice.model} ({choice.architecture}, {choice.dtype}):")
        for line in self._choices(choice.plugins):
            print(f"  {line}")
        distributions = {plugin.dist for plugin in choice.plugins}
        counts = f"{len(choice.plugins)} plugins of {len(distributions)} distributions"
        print(f"{args.file}: {counts}, {choice.digest[:12]}")
        return 0

    def _choices(self, plugins: Sequence[InstalledPlugin]) -> Iterator[str]:
        """Yield a line for each kind: its label, and names with distributions."""
        labels = {group: self._host.plugins.label(group) for group in dict.fromkeys(one.group for one in plugins)}
        width = max(map(len, labels.values()), default=0)
        for group, label in labels.items():
            names = [f"{one.name} ({one.owner})" for one in plugins if one.group == group]
            yield f"{label:{width}}  {', '.join(names)}"


def _write(path: str, choice: StartChoice) -> None:
    """Write a lock file. Raises `PluginError` CORE-P311 when it cannot be written."""
    text = json.dumps(choice.lock(), indent=2, ensure_ascii=False)
    try:
        Path(path).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise PluginError("CORE-P311", f"lock file {path} cannot be written: {error.strerror or error}.") from error
