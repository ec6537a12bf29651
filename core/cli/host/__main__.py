"""`python -m core.cli.host MODULE:FUNCTION`: call a command's function with a host (`CommandHost.in_process`)."""

from __future__ import annotations

import sys
from importlib import import_module

from core.cli.host import Host


def main(path: str) -> int:
    """Call the function and return its exit status. It is the first to import more than this."""
    module, _, name = path.partition(":")
    return int(getattr(import_module(module), name)(Host()) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
