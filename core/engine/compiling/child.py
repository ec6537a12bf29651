"""A compiler's process: `python -m core.engine.compiling.child`.

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
from pathlib import Path
from typing import BinaryIO, Literal, cast

import msgspec

from core.api.structured import CompiledGrammar, PortableGrammar, StructuredContext, StructuredOutputBackend
from core.config.resolved import EngineConfig
from core.plugins.boot import enter

HEAD = struct.Struct(">I")
GROUP = "core.structured_output"
_GRACE_SECONDS = 5


class Order(msgspec.Struct, array_like=True):
    """What to compile with.

    Attributes:
        config: `EngineConfig` as JSON.
        name: The driver.
        seconds: Time for one grammar; the process ends itself somewhat later, should nobody kill it.
        memory: Bytes of memory that the process may take beyond what it has at its start.
    """

    config: str
    name: str
    seconds: float
    memory: int


class Task(msgspec.Struct, array_like=True):
    """A grammar to compile."""

    kind: str
    value: str


class Answer(msgspec.Struct, array_like=True):
    """What became of it: `dump` of the compiled grammar, or what is wrong with it."""

    state: Literal["ready", "compiled", "refused", "failed"]
    data: bytes = b""
    text: str = ""


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


def open_backend(order: Order) -> StructuredOutputBackend:
    """Load the driver and what it needs, as the engine process would."""
    config = EngineConfig.model_validate_json(order.config)
    needed = tuple(
        one
        for one in config.plan.drivers
        if one.group == "core.weight_loaders" or (one.group, one.name) == (GROUP, order.name)
    )
    active = enter(config.plan.model_copy(update={"drivers": needed, "hooks": ()}))
    path, reader = Path(config.checkpoint.path), active.impl("core.weight_loaders")()
    tokenizer = reader.tokenizer(path)
    context = StructuredContext(config.shape.vocab_size, lambda: tokenizer, active.options(GROUP))
    backend: StructuredOutputBackend = active.impl(GROUP)(context)
    return backend


def limit_memory(more: int) -> None:
    """Let this process have no more than `more` bytes beyond what it has, where the system can do that."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def answer(compile: Callable[[str, str], CompiledGrammar], task: Task) -> Answer:
    """Compile one grammar."""
    try:
        return Answer("compiled", cast(PortableGrammar, compile(task.kind, task.value)).dump())
    except ValueError as error:
        return Answer("refused", text=str(error))
    except MemoryError:
        return Answer("refused", text="compiling it takes too much memory")
    except Exception as error:
        return Answer("failed", text=f"{type(error).__name__}: {error}")


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer until the input ends."""
    first = read(source)
    if first is None:
        return
    order = msgspec.msgpack.decode(first, type=Order)
    backend = open_backend(order)
    limit_memory(order.memory)
    write(sink, Answer("ready"))
    while (data := read(source)) is not None:
        signal.setitimer(signal.ITIMER_REAL, order.seconds + _GRACE_SECONDS)
        write(sink, answer(backend.compile, msgspec.msgpack.decode(data, type=Task)))
        signal.setitimer(signal.ITIMER_REAL, 0)


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
