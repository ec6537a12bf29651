"""`core run-batch`: answer the requests of a file, in OpenAI's Batch format."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api import CommandHost, ConfigError, GivenOptions

if TYPE_CHECKING:
    from core_plugin_run_batch.outbox import Outbox
    from core_plugin_run_batch.requests import BadLine, Request
    from core_plugin_run_batch.sender import Sender

_CONCURRENCY = 64
_SHOWN = 10

INTERRUPTED = 130
"""Exit status of a command that Ctrl-C ended."""


class RunBatch:
    """The command."""

    def bind(self, host: CommandHost) -> None:
        """Take what core lends."""
        self._host = host

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        parser.description = (
            "Reads a JSON object per line with custom_id, method, url and body, and writes one with the answer "
            "per line. Run again, it goes on where it was interrupted and tries again what failed."
        )
        _add_flags(parser)
        self._host.options.add_alone(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Answer what is not answered yet; return 0 if nothing failed."""
        from core_plugin_run_batch.outbox import Outbox
        from core_plugin_run_batch.requests import read_requests

        options = _options(self._host, args)
        requests, bad = read_requests(args.input_file)
        for line in bad[:_SHOWN]:
            print(f"core: {line}", file=sys.stderr)
        if len(bad) > _SHOWN:
            print(f"core: and {len(bad) - _SHOWN} bad lines more; the error file has all", file=sys.stderr)
        output = Path(args.output_file)
        with Outbox(self._host.files, output, _error_file(args), overwrite=args.overwrite) as outbox:
            left = [request for request in requests if not outbox.has(request)]
            for line in bad:
                outbox.fail(line.record())
            interrupted = _answer(self._host, args, options, left, outbox) if left else False
            return INTERRUPTED if interrupted else _finish(requests, left, bad, outbox)


def _add_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("batch")
    group.add_argument(
        "-i", "--input-file", required=True, metavar="FILE", help="Requests, one per line; - is standard input."
    )
    group.add_argument("-o", "--output-file", required=True, metavar="FILE", help="Answers, in the requests' order.")
    group.add_argument(
        "--error-file", metavar="FILE", help="What failed (default: the output's name with .errors before its ending)."
    )
    group.add_argument(
        "--url",
        metavar="URL",
        help="Base URL of a server; default without --model: the one that `core ps` lists, or "
        "http://127.0.0.1:8000. --api-key is its key.",
    )
    group.add_argument("--ca", metavar="FILE", help="Authority of an https server's certificate, in PEM form.")
    group.add_argument(
        "--concurrency", type=int, default=_CONCURRENCY, metavar="N", help=f"Requests at a time ({_CONCURRENCY})."
    )
    group.add_argument(
        "--max-retries", type=int, default=8, metavar="N", help="Tries after a failure that may pass (default: 8)."
    )
    group.add_argument("--timeout", type=float, metavar="SECONDS", help="Longest time for one answer; default: none.")
    group.add_argument("--overwrite", action="store_true", help="Do not use what an earlier run has written.")


def _answer(
    host: CommandHost, args: argparse.Namespace, options: GivenOptions, left: list[Request], outbox: Outbox
) -> bool:
    """Ask for the answers that are missing; return whether Ctrl-C ended it."""
    try:
        with ExitStack() as held:
            sender = _sender(host, args, options, held)
            progress = held.enter_context(host.terminal.requests(len(left)))
            with host.signals.closed_whole(asyncio.Runner()) as runner:
                runner.get_loop().set_exception_handler(_report)
                host.signals.run(runner, sender.send_all(left, outbox, progress), signal.SIGTERM, signal.SIGHUP)
    except KeyboardInterrupt:
        print(f"core: interrupted with {outbox.answered} answers kept; run it again to go on", file=sys.stderr)
        return True
    return False


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what went wrong in a callback, but for one thing that harms nobody.

    anyio's Unix sockets wake whoever waits for data by a callback, which may be on its way when Ctrl-C ends the wait.
    """
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


def _sender(host: CommandHost, args: argparse.Namespace, options: GivenOptions, held: ExitStack) -> Sender:
    """Return what sends to the server of `--url`, or to one of this command's own, which `held` ends."""
    from core_plugin_run_batch.sender import Sender

    if _is_local(host, args):
        server = host.servers.own(_without_readers(options))
        held.callback(server.close)
        address = server.address
    else:
        address = host.servers.address(host.servers.choose(args.url))
    return Sender(
        address.root,
        options.value("server.api_key"),
        address.socket,
        concurrency=args.concurrency,
        retries=args.max_retries,
        timeout=args.timeout,
        verify=host.servers.trust(args.ca),
    )


def _without_readers(options: GivenOptions) -> GivenOptions:
    """Return the options of a server whose answers nobody reads along: no step is kept short, unless the user says."""
    said = options.source("scheduler.max_itl_ms") != "default"
    return options if said else options.changed({"scheduler.max_itl_ms": 0.0})


def _finish(requests: list[Request], left: list[Request], bad: list[BadLine], outbox: Outbox) -> int:
    failed = outbox.finish([request.custom_id for request in requests])
    before = f" ({len(requests) - len(left)} of them before)" if len(left) < len(requests) else ""
    print(f"{len(requests) + len(bad) - failed} answered{before}, {failed} failed: {outbox.path}")
    if failed:
        print(f"what failed: {outbox.errors}", file=sys.stderr)
    return 1 if failed else 0


def _options(host: CommandHost, args: argparse.Namespace) -> GivenOptions:
    """Check the flags against each other. Raises `ConfigError`, CORE-C182."""
    options = host.options.load_alone(args)
    if args.concurrency < 1 or args.max_retries < 0 or (args.timeout is not None and not args.timeout > 0):
        raise ConfigError(
            "CORE-C182", "--concurrency must be 1 or more, --max-retries 0 or more, --timeout more than 0."
        )
    if _is_local(host, args) and args.url is not None:
        raise ConfigError("CORE-C182", "--url and --model exclude each other.", hint="Give one of them.")
    engine = [flag for path, flag in host.options.given(args).items() if path != "server.api_key"]
    if engine and not _is_local(host, args):
        raise ConfigError("CORE-C182", f"flag {engine[0]} needs a model to be run here.", hint="Give --model.")
    return options


def _is_local(host: CommandHost, args: argparse.Namespace) -> bool:
    return "model.model" in host.options.given(args)


def _error_file(args: argparse.Namespace) -> Path:
    output = Path(args.output_file)
    return Path(args.error_file) if args.error_file else output.with_name(f"{output.stem}.errors{output.suffix}")
