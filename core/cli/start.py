"""Where the `core` command begins: Ctrl-C is silent from here on, also while everything else is imported."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command line as a process of its own; return its status."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return _run()  # whoever started it has it ignored
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the process ends at once, as there is nothing to be closed yet
    try:
        return _run(interruptible=True)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run(*, interruptible: bool = False) -> int:
    from core.cli.main import main as run
    from core.signals import quietly

    def work() -> int:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()

    return quietly(work)
