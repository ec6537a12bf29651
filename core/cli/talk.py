"""What `core chat` and `core complete` share: flags, where answers come from, and how they are shown."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

from core.cli.client import Client, Delta

DEFAULT_URL = "http://127.0.0.1:8000/v1"


class Source(Protocol):
    """Where answers come from: a server, or a model in this process."""

    def chat(self, messages: list[dict[str, str]], params: dict[str, Any]) -> Iterator[Delta]: ...

    def complete(self, prompt: str, params: dict[str, Any]) -> Iterator[Delta]: ...

    def close(self) -> None: ...


def add_flags(parser: argparse.ArgumentParser, quick_help: str) -> None:
    """Add the flags of both commands."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--url", default=DEFAULT_URL, help=f"Base URL of the server (default: {DEFAULT_URL}).")
    where.add_argument("--local", metavar="MODEL", help="Run this model here instead of asking a server.")
    parser.add_argument("--model-name", help="Model to ask for; default: the server's first.")
    parser.add_argument("--api-key", default=None, help="Key of the server. [CORE_API_KEY]")
    parser.add_argument("-q", "--quick", metavar="TEXT", help=quick_help)
    parser.add_argument("--max-tokens", type=int, help="Longest answer, in tokens.")
    parser.add_argument("--temperature", type=float, help="0 takes the most likely token.")
    parser.add_argument("--top-p", type=float, help="Sample from the tokens that make up this probability.")
    parser.add_argument("--seed", type=int, help="Makes the answer reproducible.")
    parser.add_argument("--stats", action="store_true", help="Print the speed after each answer.")


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """Return the sampling parameters that were given."""
    names = ("max_tokens", "temperature", "top_p", "seed")
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def open_source(args: argparse.Namespace) -> Source:
    """Connect to the server, or load the model."""
    if args.local is not None:
        from core.cli.local import LocalModel

        return LocalModel(args.local)
    return Client(args.url, api_key=args.api_key or os.environ.get("CORE_API_KEY"), model=args.model_name)


def show(deltas: Iterator[Delta], *, stats: bool) -> str:
    """Print an answer as it comes and return it. Ctrl-C ends the answer, not the program."""
    started = time.perf_counter()
    first: float | None = None
    parts: list[str] = []
    chunks, tokens = 0, None
    try:
        for delta in deltas:
            tokens = delta.tokens if delta.tokens is not None else tokens
            if delta.text:
                first = first or time.perf_counter()
                chunks += 1
                parts.append(delta.text)
                print(printable(delta.text), end="", flush=True)
    except KeyboardInterrupt:
        print(" [stopped]", end="")
    finally:
        # Closing the generator closes the response, which tells the server to stop.
        getattr(deltas, "close", lambda: None)()
    print(flush=True)
    if stats:
        print(speed(started, first, time.perf_counter(), tokens or chunks), file=sys.stderr)
    return "".join(parts)


def speed(started: float, first: float | None, ended: float, tokens: int) -> str:
    """Return the read-out of one answer; times are in seconds."""
    if first is None:
        return "[no text]"
    rate = f", {(tokens - 1) / (ended - first):.1f} tokens/s" if tokens > 1 and ended > first else ""
    return f"[first token after {(first - started) * 1e3:.0f} ms{rate}, {tokens} tokens]"


def printable(text: str) -> str:
    """Drop control characters other than line breaks and tabs: a model must not drive the terminal."""
    return "".join(char for char in text if char in "\n\t" or (ord(char) >= 32 and not 127 <= ord(char) < 160))


def prompts(mark: str) -> Iterator[str]:
    """Yield what the user types until Ctrl-D; empty lines are skipped."""
    if sys.stdin.isatty():
        import readline  # noqa: F401  (line editing and history for `input`)
    else:
        mark = ""
    while True:
        try:
            line = input(mark).strip()
        except EOFError:
            return
        if line:
            yield line
