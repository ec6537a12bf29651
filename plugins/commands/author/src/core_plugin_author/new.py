"""`core plugins new`: a complete distribution to start from."""

from __future__ import annotations

import argparse

from core.api import CommandHost

HOOKS_GROUP = "core.plugins"


class New:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._plugins = host.plugins

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.description = (
            "Writes the folder core-plugin-NAME with entry point, manifest, implementation, tests and README."
        )
        kind = parser.add_argument(
            "kind", metavar="KIND", help="Kind of plugin (`core plugins api` lists them), or hooks."
        )
        kind.completer = lambda **_: [group.removeprefix("core.") for group in self._plugins.kinds()]  # type: ignore[attr-defined]
        parser.add_argument("name", metavar="NAME", help="Name of the plugin: small letters, digits, - and _.")
        parser.add_argument("--dir", default=".", metavar="D", help="Where to put the folder (default: here).")

    def run(self, args: argparse.Namespace) -> int:
        """Write the project and say what to do next."""
        from core_plugin_author.scaffold import scaffold

        hooks = args.kind in ("hooks", "hook")
        kind = self._plugins.kinds()[HOOKS_GROUP] if hooks else self._plugins.kind(args.kind)
        made = scaffold(kind, args.name, args.dir)
        print(f"{made.folder}")
        for path in made.written:
            print(f"  {path}")
        print("Next:")
        print(f"  core plugins install {made.folder}")
        print(f"  core plugins doctor {args.name}")
        print(f"  python -m pytest {made.folder}")
        print(f"  core plugins test {args.name}")
        print(f"  {made.use}")
        return 0
