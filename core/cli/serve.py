"""`core serve`: resolve the options and serve."""

from __future__ import annotations

import argparse
import logging
import os
import signal
from typing import Any

from core.cli.help import add_help_flag
from core.config.flags import add_option_flags
from core.config.load import load_options
from core.engine.child import EngineChild
from core.options.server import ServerOptions
from core.phases import phase, report_birth
from core.signals import ended_by

TOKENIZER_THREADS = 4

_log = logging.getLogger(__name__)


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "serve",
        help="Serve a model over HTTP (OpenAI-compatible).",
        description="Serve a model over HTTP. Every flag is also an environment variable and a key of the file.",
        add_help=False,
    )
    add_help_flag(parser)
    add_option_flags(parser, positional_model=True)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal ends it; return the exit status."""
    report_birth("interpreter and flags")
    options = load_options(args).options
    _check_edge(options.server)
    # Tokenizing shares the processors with the engine; the library would take as many threads as there are processors.
    os.environ.setdefault("RAYON_NUM_THREADS", str(min(TOKENIZER_THREADS, os.cpu_count() or 1)))
    # The engine's imports take longer than anything here: let them begin while this process decides what to run.
    # The server has handlers of its own as soon as it runs.
    with ended_by(signal.SIGTERM), EngineChild() as child:
        from core.terminal.progress import WeightProgress

        with phase("resolve"), WeightProgress(what="fetching the model") as fetching:
            from core.selection.resolver import resolve

            resolution = resolve(options, progress=fetching.update)
        for problem in resolution.warnings:
            _log.warning("%s", " ".join(part for part in (problem.code, problem.message, problem.hint) if part))
        from core.server.listen import bind

        listener = bind(options.server)  # an address that is taken stops the start before anything is loaded
        child.configure(resolution.config)
        with phase("server imports"):
            from core.server import launch
        return launch.run(resolution, options, listener=listener, child=child)


def _check_edge(server: ServerOptions) -> None:
    """Refuse now what the server would refuse once a model has been fetched. Raises `ConfigError`."""
    from core.server.edge import check_origins
    from core.server.tls import certificates

    check_origins(server)
    certificates(server)
