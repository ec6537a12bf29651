"""`core run-batch`: answer the requests of a file, in OpenAI's Batch format."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api.errors import ConfigError
from core.cli.engine_flags import add_engine_flags, engine_options
from core.cli.processes.choose import server_url
from core.cli.talk import INTERRUPTED
from core.config.flags import Given
from core.config.parser import CoreParser
from core.signals import closed_whole, run_ended_by

if TYPE_CHECKING:
    from core.cli.run_batch.outbox import Outbox
    from core.cli.run_batch.requests import BadLine, Request
    from core.cli.run_batch.sender import Sender
    from core.config.load import LoadedOptions
    from core.config.resolved import Options

_CONCURRENCY = 64
_SHOWN = 10


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "run-batch",
        help="Answer the requests of a file (OpenAI Batch format).",
        description="Reads a JSON object per line with custom_id, method, url and body, and writes one with the answer "
        "per line. Run again, it goes on where it was interrupted and tries again what failed.",
        add_help=False,
    )
    _add_flags(parser)
    add_engine_flags(parser)
    parser.set_defaults(run=run)


def _add_flags(parser: CoreParser) -> None:
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


def run(args: argparse.Namespace) -> int:
    """Answer what is not answered yet; return 0 if nothing failed."""
    from core.cli.run_batch.outbox import Outbox
    from core.cli.run_batch.requests import read_requests

    loaded = _options(args)
    requests, bad = read_requests(args.input_file)
    for line in bad[:_SHOWN]:
        print(f"core: {line}", file=sys.stderr)
    if len(bad) > _SHOWN:
        print(f"core: and {len(bad) - _SHOWN} bad lines more; the error file has all", file=sys.stderr)
    with Outbox(Path(args.output_file), _error_file(args), overwrite=args.overwrite) as outbox:
        left = [request for request in requests if not outbox.has(request)]
        for line in bad:
            outbox.fail(line.record())
        interrupted = _answer(args, loaded, left, outbox) if left else False
        return INTERRUPTED if interrupted else _finish(requests, left, bad, outbox)


def _answer(args: argparse.Namespace, loaded: LoadedOptions, left: list[Request], outbox: Outbox) -> bool:
    """Ask for the answers that are missing; return whether Ctrl-C ended it."""
    from core.cli.ui.progress import RequestProgress

    try:
        with ExitStack() as held:
            sender = _sender(args, loaded, held)
            progress = held.enter_context(RequestProgress(len(left)))
            with closed_whole(asyncio.Runner()) as runner:
                runner.get_loop().set_exception_handler(_report)
                run_ended_by(runner, sender.send_all(left, outbox, progress), signal.SIGTERM, signal.SIGHUP)
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


def _sender(args: argparse.Namespace, loaded: LoadedOptions, held: ExitStack) -> Sender:
    """Return what sends to the server of `--url`, or to one of this command's own, which `held` ends."""
    from core.cli.client import SOCKET, SOCKET_HOST, server_root, trust
    from core.cli.run_batch.sender import Sender

    key, socket = loaded.options.server.api_key, None
    if _is_local(args):
        from core.cli.local import LocalServer

        server = LocalServer(_without_readers(loaded))
        held.callback(server.close)
        root, socket = SOCKET_HOST, server.path
    elif (url := server_url(args.url)).startswith(SOCKET):
        root, socket = SOCKET_HOST, url.removeprefix(SOCKET)
    else:
        root = server_root(url)
    return Sender(
        root,
        key,
        socket,
        concurrency=args.concurrency,
        retries=args.max_retries,
        timeout=args.timeout,
        verify=trust(args.ca),
    )


def _without_readers(loaded: LoadedOptions) -> Options:
    """Return the options of a server whose answers nobody reads along: no step is kept short, unless the user says."""
    if loaded.sources["scheduler.max_itl_ms"] != "default":
        return loaded.options
    scheduler = loaded.options.scheduler.model_copy(update={"max_itl_ms": 0.0})
    return loaded.options.model_copy(update={"scheduler": scheduler})


def _finish(requests: list[Request], left: list[Request], bad: list[BadLine], outbox: Outbox) -> int:
    failed = outbox.finish([request.custom_id for request in requests])
    before = f" ({len(requests) - len(left)} of them before)" if len(left) < len(requests) else ""
    print(f"{len(requests) + len(bad) - failed} answered{before}, {failed} failed: {outbox.path}")
    if failed:
        print(f"what failed: {outbox.errors}", file=sys.stderr)
    return 1 if failed else 0


def _options(args: argparse.Namespace) -> LoadedOptions:
    """Check the flags against each other. Raises `ConfigError`, CORE-C182."""
    loaded = engine_options(args)
    if args.concurrency < 1 or args.max_retries < 0 or (args.timeout is not None and not args.timeout > 0):
        raise ConfigError(
            "CORE-C182", "--concurrency must be 1 or more, --max-retries 0 or more, --timeout more than 0."
        )
    if _is_local(args) and args.url is not None:
        raise ConfigError("CORE-C182", "--url and --model exclude each other.", hint="Give one of them.")
    engine = [value.flag for name, value in vars(args).items() if name != "server.api_key" and isinstance(value, Given)]
    if engine and not _is_local(args):
        raise ConfigError("CORE-C182", f"flag {engine[0]} needs a model to be run here.", hint="Give --model.")
    return loaded


def _is_local(args: argparse.Namespace) -> bool:
    return hasattr(args, "model.model")


def _error_file(args: argparse.Namespace) -> Path:
    output = Path(args.output_file)
    return Path(args.error_file) if args.error_file else output.with_name(f"{output.stem}.errors{output.suffix}")
