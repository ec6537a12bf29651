"""A compiler's process: `python -m core_plugin_structured.compiling.child`.

Standard input brings an `Order` and then grammars, each answered on standard output; its end means that the engine is
gone. Messages are msgpack behind their length in four bytes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO, Literal, cast

import msgspec

from core.api.descriptors import StructuredOutputSpec
from core.api.errors import PluginError
from core.api.kinds import load_chosen
from core.api.structured import CompiledGrammar, PortableGrammar, StructuredOutputBackend
from core_plugin_structured.compiling.memory import footprint, virtual_size
from core_plugin_structured.compiling.trial import begin

HEAD = struct.Struct(">I")
_GRACE_SECONDS = 5


class Order(msgspec.Struct, array_like=True):
    """Settings of a compiler's process, sent to it before any grammar.

    Attributes:
        plugin: The driver, for `load_chosen`.
        name: Its name.
        seconds: Time for one grammar; the process ends itself somewhat later, should nobody kill it.
        memory: Bytes of memory that the process may take beyond what it has at its start.
        vocab_size: Bits of a mask.
    """

    plugin: str
    name: str
    seconds: float
    memory: int
    vocab_size: int


class Task(msgspec.Struct, array_like=True):
    """A grammar to compile."""

    kind: str
    value: str


class Answer(msgspec.Struct, array_like=True):
    """Result of compiling a grammar.

    Attributes:
        state: `exhausted`: the memory did not suffice; `failed`: the backend raised what it should not.
        data: `dump` of the compiled grammar; empty if its backend has none.
        text: The fault of the grammar.
        size: Bytes that it takes once it is compiled and its first masks are made.
    """

    state: Literal["ready", "compiled", "refused", "exhausted", "failed"]
    data: bytes = b""
    text: str = ""
    size: int = 0


def read(stream: BinaryIO) -> bytes | None:
    """Return the next message; None at the end."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    return stream.read(HEAD.unpack(head)[0])


def write(stream: BinaryIO, message: msgspec.Struct) -> None:
    """Send a message."""
    data = msgspec.msgpack.encode(message)
    stream.write(HEAD.pack(len(data)) + data)
    stream.flush()


def open_backend(order: Order) -> tuple[Callable[[str, str], CompiledGrammar], bool]:
    """Load the driver and what it needs, as the engine process would.

    Returns:
        What compiles a grammar and tries its first masks, and whether compiled grammars can be sent.
    """
    chosen = load_chosen(order.plugin)
    backend: StructuredOutputBackend = chosen.value

    def compile(kind: str, value: str) -> CompiledGrammar:
        compiled = backend.compile(kind, value)
        begin(compiled, order.vocab_size, chosen)
        return compiled

    return compile, cast(StructuredOutputSpec, chosen.spec).isolate


def limit_memory(more: int) -> None:
    """Let this process have no more than `more` bytes beyond what it has, where the system can do that."""
    size = virtual_size()
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        if size:
            resource.setrlimit(resource.RLIMIT_AS, (size + more, size + more))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a library that aborts leaves no file of that size


def answer(compile: Callable[[str, str], CompiledGrammar], task: Task, *, travels: bool) -> Answer:
    """Compile one grammar and measure what it takes."""
    try:
        before = footprint()
        compiled = compile(task.kind, task.value)
        size = footprint().since(before)
        return Answer("compiled", cast(PortableGrammar, compiled).dump() if travels else b"", size=size)
    except (ValueError, PluginError) as error:
        return Answer("refused", text=str(error))
    except MemoryError:
        return Answer("exhausted")
    except Exception as error:
        return Answer("failed", text=f"{type(error).__name__}: {error}")


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the input ends."""
    first = read(source)
    if first is None:
        return
    order = msgspec.msgpack.decode(first, type=Order)
    compile, travels = open_backend(order)
    limit_memory(order.memory)
    write(sink, Answer("ready"))
    while (data := read(source)) is not None:
        signal.setitimer(signal.ITIMER_REAL, order.seconds + _GRACE_SECONDS)
        write(sink, answer(compile, msgspec.msgpack.decode(data, type=Task), travels=travels))
        signal.setitimer(signal.ITIMER_REAL, 0)
        _forget_words()


def _forget_words() -> None:
    """Empty the file into which libraries print: only the last words before a process dies are read."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
        os.ftruncate(2, 0)
        os.lseek(2, 0, os.SEEK_SET)


def main() -> int:
    """Serve on the standard streams; what libraries print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(10)  # decoding comes first
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, sink)
    return 0


if __name__ == "__main__":
    sys.exit(main())
