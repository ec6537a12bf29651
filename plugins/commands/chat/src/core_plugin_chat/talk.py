"""Parts shared by `core chat`, `core run` and `core complete`: flags, sources of answers, and how these are shown."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from core.api import SAMPLING_FIELDS, CommandHost, OptionFlags, SamplingField, ServerDelta, Signals
from core_plugin_chat.answer import View, open_view
from core_plugin_chat.echo import echo_off
from core_plugin_chat.lines import readable

STDIN = "-"
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C ended."""

_SEED = "seed"
"""Has a flag wherever answers come from, and one of the engine's where the model runs for the command alone."""


class Source(Protocol):
    """Where answers come from: a server, whose address is `place`, or a model in this process, which has none."""

    @property
    def model(self) -> str: ...

    @property
    def place(self) -> str: ...

    def chat(self, messages: list[dict[str, Any]], params: dict[str, Any]) -> Iterator[ServerDelta]: ...

    def complete(self, prompt: str, params: dict[str, Any]) -> Iterator[ServerDelta]: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Answer:
    """An answer as far as it came.

    Attributes:
        tokens: Generated; what the server says, or the pieces that came.
        prompt_tokens: Read, if the server says it.
        wait, seconds: Until the first text, and until the end; `wait` is None if there was no text.
        stopped: Somebody pressed Ctrl-C.
        cut: It ended because it was as long as it may be.
    """

    text: str = ""
    tokens: int = 0
    prompt_tokens: int = 0
    wait: float | None = None
    seconds: float = 0.0
    stopped: bool = False
    cut: bool = False


def add_source_flags(parser: argparse.ArgumentParser, usual: str) -> None:
    """Add the flags that say where answers come from.

    Args:
        usual: Address of a server of which nothing is said.
    """
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--url",
        metavar="URL",
        help=f"Base URL of the server; default: the one that `core ps` lists, or {usual}.",
    )
    where.add_argument("--local", metavar="MODEL", help="Run this model here instead of asking a server.")
    parser.add_argument("--model-name", metavar="NAME", help="Model to ask for; default: the server's first.")
    parser.add_argument("--api-key", metavar="KEY", help="Key of the server. [CORE_API_KEY]")
    parser.add_argument(
        "--ca", metavar="FILE", help="Authority of an https server's certificate, in PEM form. [SSL_CERT_FILE]"
    )
    _add_sampling_flag(parser, SAMPLING_FIELDS[_SEED])


def add_flags(parser: argparse.ArgumentParser, quick_help: str) -> None:
    """Add the flags of sampling and showing."""
    parser.add_argument("-q", "--quick", metavar="TEXT", help=f"{quick_help} - takes all of standard input.")
    for field in SAMPLING_FIELDS.values():
        if field.flag and field.name != _SEED:
            _add_sampling_flag(parser, field)
    parser.set_defaults(further_sampling=())
    parser.add_argument("--stats", action="store_true", help="Print tokens and speed after each answer.")


def add_plugin_flags(parser: argparse.ArgumentParser, options: OptionFlags) -> None:
    """Add flags of the sampling parameters that installed logits processors declare, behind those of the command."""
    added = []
    for processor, field in options.sampling_fields():
        with suppress(argparse.ArgumentError):  # the command has such a flag, or another processor
            _add_sampling_flag(parser, field, f" With the logits processor '{processor}'.")
            added.append(field.name)
    parser.set_defaults(further_sampling=added)


def _add_sampling_flag(parser: argparse.ArgumentParser, field: SamplingField, more: str = "") -> None:
    flag, said = f"--{field.name.replace('_', '-')}", field.meaning.replace("`", "").replace("%", "%%") + more
    if field.type == "boolean":
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=said)
    elif field.type == "texts":
        parser.add_argument(flag, metavar="TEXT", action="append", help=f"{said} Repeatable.")
    else:
        kind, metavar = (int, "N") if field.type == "integer" else (float, "X")
        parser.add_argument(flag, type=kind, metavar=metavar, help=said)


def sampling(args: argparse.Namespace) -> dict[str, Any]:
    """Return the sampling parameters that were given."""
    names = [*(one.name for one in SAMPLING_FIELDS.values() if one.flag), *args.further_sampling]
    return {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}


def quick_text(args: argparse.Namespace) -> str | None:
    """Return the one text of `--quick`, if it was given."""
    quick: str | None = args.quick
    text = sys.stdin.read().rstrip("\n") if quick == STDIN else quick
    return None if text is None else readable(text)


def open_source(host: CommandHost, args: argparse.Namespace) -> Source:
    """Connect to the server, or start the model."""
    if args.local is not None:
        return host.servers.connect_own(host.options.of_model(args.local, "--local"))
    key = args.api_key or os.environ.get("CORE_API_KEY")
    servers = host.servers
    url = servers.choose(args.url, args.model_name, ask=args.quick is None)
    return servers.connect(url, api_key=key, model=args.model_name, verify=servers.trust(args.ca))


def open_run_source(host: CommandHost, args: argparse.Namespace) -> Source:
    """Start the model of `core run`, which takes the engine's own flags."""
    options = host.options.load_alone(args)
    if "model.seed" in host.options.given(args):
        args.seed = options.value("model.seed")
    return host.servers.connect_own(options)


def show(signals: Signals, deltas: Iterator[ServerDelta], view: View) -> Answer:
    """Show an answer as it comes and return it. Ctrl-C ends the answer, not the program."""
    answer, started = Answer(), time.perf_counter()
    with echo_off(signals, sys.stdout, pause=view.pause, resume=view.resume):
        try:
            for delta in deltas:
                if delta.text or delta.reasoning:
                    answer.wait = answer.wait or time.perf_counter() - started
                    answer.tokens += 1
                _take(delta, answer, view)
        except KeyboardInterrupt:
            answer.stopped = True
        finally:
            # Closing the generator closes the response, which tells the server to stop.
            getattr(deltas, "close", lambda: None)()
            answer.seconds = time.perf_counter() - started
            view.close("stopped" if answer.stopped else "cut at the longest answer" if answer.cut else "")
    return answer


def _take(delta: ServerDelta, answer: Answer, view: View) -> None:
    if delta.reasoning:
        view.reasoning(delta.reasoning)
    if delta.text:
        answer.text += delta.text
        view.text(delta.text)
    if delta.tokens is not None:
        answer.tokens = delta.tokens
    answer.prompt_tokens = delta.prompt_tokens or answer.prompt_tokens
    answer.cut = answer.cut or delta.finish_reason == "length"


def view_for(args: argparse.Namespace, *, markdown: bool) -> View:
    """Return how the next answer is shown."""
    return open_view(markdown=markdown, reasoning=not getattr(args, "hide_reasoning", False))


def speed(answer: Answer) -> str:
    """Return the read-out of one answer."""
    if answer.wait is None:
        return "[no text]"
    writing = answer.seconds - answer.wait
    rate = f", {(answer.tokens - 1) / writing:.1f} tokens/s" if answer.tokens > 1 and writing > 0 else ""
    read = f"{answer.prompt_tokens} tokens read, " if answer.prompt_tokens else ""
    return f"[{read}first token after {answer.wait * 1e3:.0f} ms{rate}, {answer.tokens} tokens]"
