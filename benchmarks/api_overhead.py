"""What the API process costs: CPU time of a request, and of a streamed chunk, with a stub in place of the engine.

    python benchmarks/api_overhead.py [--streams 1 32 1000] [--tokens 64] [--interval-us 150] [--api A] [--json FILE]

The server is the real one (routes, front end, detokenization, HTTP) in a process of its own. The stub gives every
running request one token per interval, as one message that is decoded as it would be coming from the engine process.
The interval is what so many streams need, so that no token waits for the one before it and few streams are soon done. A
client in this process reads raw bytes. CPU seconds are those of the server process, by the kernel's clock of it (Linux
only): requests of one token give the cost of a request, requests of many tokens, all at once, that of a chunk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from core.engine.messages import Abort, Add, Finished, FromEngine, Outputs, Ready, Started, Stats, ToEngine

TOKENS = "abcdefghijklmnopqrstuvwxyz"
BODY = {"model": "stub", "stream": True, "temperature": 0.0}
CHAT = {"messages": [{"role": "user", "content": "How much does a token cost? " * 8}]}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
"""API -> where a chat is answered."""

LEAST_INTERVAL = 0.002
"""Seconds between two steps of the stub, however few the streams."""


class StubEngine:
    """One token for every running request per interval; as an engine process would send it."""

    def __init__(self, interval: float) -> None:
        self.ready = Ready(num_blocks=10**6, block_size=16, max_model_len=4096, facts={}, timeline=[])
        self._interval = interval
        self._left: dict[int, int] = {}
        self._new: list[int] = []
        self._work = asyncio.Event()
        self._next = 0.0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[FromEngine] = msgspec.msgpack.Decoder(FromEngine)

    def send(self, message: ToEngine) -> None:
        """Take a request, or forget some."""
        if isinstance(message, Add):
            self._left[message.handle] = message.params.max_tokens or 1
            self._new.append(message.handle)
            self._work.set()
        elif isinstance(message, Abort):
            for handle in message.handles:
                self._left.pop(handle, None)

    async def receive(self) -> FromEngine:
        """Return the next step's outputs when their time has come."""
        while not self._left:
            self._work.clear()
            await self._work.wait()
        await asyncio.sleep(max(0.0, self._next - time.monotonic()))
        self._next = time.monotonic() + self._interval
        return self._decoder.decode(self._encoder.encode(self._outputs()))

    def _outputs(self) -> Outputs:
        handles = np.fromiter(self._left, "<i8", len(self._left))
        finished = [Finished(handle, "length") for handle, left in self._left.items() if left == 1]
        started, self._new = [Started(handle, 0) for handle in self._new], []
        tokens = (handles % len(TOKENS) + 1).astype("<i4")
        self._left = {handle: left - 1 for handle, left in self._left.items() if left > 1}
        stats = Stats(running=len(self._left))
        return Outputs(
            handles=handles.tobytes(), tokens=tokens.tobytes(), started=started, finished=finished, stats=stats
        )

    def alive(self) -> bool:
        """Always."""
        return True

    async def close(self) -> None:
        """Nothing to stop."""


def serve(interval: float) -> None:
    """Serve the stub until the process is ended; the first line of output is the port."""
    import uvloop
    from core_plugin_anthropic.manifest import ANTHROPIC
    from core_plugin_anthropic.routes import AnthropicRoutes
    from core_plugin_openai.manifest import OPENAI
    from core_plugin_openai.routes import OpenAIRoutes

    from core.config.resolved import Options
    from core.server.http import HttpServer, relax_collector
    from core.server.listen import bind
    from core_testing.served import served_app

    options = Options.model_validate(
        {"server": {"port": 0}, "scheduler": {"max_num_seqs": 4096, "max_waiting": 8192}, "model": {"model": "stub"}}
    )

    async def main() -> None:
        from core.frontend.async_llm import AsyncLLM

        llm = AsyncLLM(_resolution(options), StubEngine(interval))
        listener = bind(options.server)
        port = listener.socket.getsockname()[1]

        def started() -> None:
            relax_collector()
            print(port, flush=True)

        server = HttpServer(
            served_app(llm, options, {OPENAI: OpenAIRoutes({}), ANTHROPIC: AnthropicRoutes({})}), started
        )
        await server.serve(sockets=[listener.socket])

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def _resolution(options: Any) -> Any:
    """Return what `core.selection.resolver.resolve` would: with a template engine and a byte-level tokenizer."""
    from core.api import CheckpointInfo, ModelFiles, ModelShape
    from core.config.resolved import EngineConfig
    from core.plugins.catalog import Catalogue
    from core.plugins.plan import PlannedPlugin, PluginPlan

    (engine,) = Catalogue.scan().entries("core.chat_templates")
    names = {name: getattr(engine, name) for name in ("group", "name", "value", "dist", "version")}
    here = str(Path(__file__).parent)
    shape = ModelShape(
        vocab_size=300, max_positions=4096, num_layers=1, hidden_size=8, num_heads=1, num_kv_heads=1, head_dim=8
    )
    config = EngineConfig(
        options=options,
        files=ModelFiles(reference="stub", path=here, name="stub"),
        checkpoint=CheckpointInfo(path=here, format="stub", architecture="Stub", config={}),
        shape=shape,
        plan=PluginPlan(drivers=(PlannedPlugin(**names, api=1),)),
        dtype="float32",
        kv_dtype="float32",
        max_model_len=4096,
        block_size=16,
    )
    return SimpleNamespace(config=config, reader=SimpleNamespace(tokenizer=lambda path: _tokenizer()))


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from core_tokenizers.fast import FastTokenizer

    words = ["</s>", *(f"Ġ{letter}ord" for letter in TOKENS), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE(vocab={word: number for number, word in enumerate(words)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(words[:1])
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    return FastTokenizer(backend, special={"eos_token": "</s>"}, chat_template=template, eos_ids=[0])


class Server(NamedTuple):
    """The process that is measured."""

    pid: int
    port: int
    path: str


# -- the client ----------------------------------------------------------------------------------------------------


async def stream(server: Server, tokens: int) -> int:
    """Send one request and return how many events came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    body = json.dumps({**BODY, **CHAT, "max_tokens": tokens}).encode()
    head = f"POST {server.path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    events = 0
    while data := await reader.read(1 << 16):
        events += data.count(b"data: {")
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return events


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used, to the nanosecond where `/proc` counts in steps of 10 ms."""
    return time.clock_gettime(~pid << 3 | 2)


async def run(server: Server, streams: int, tokens: int, rounds: int = 1) -> tuple[float, int]:
    """Return CPU seconds and events of `streams` requests at once, `rounds` times."""
    before, events = cpu_seconds(server.pid), 0
    for _ in range(rounds):
        events += sum(await asyncio.gather(*(stream(server, tokens) for _ in range(streams))))
    return cpu_seconds(server.pid) - before, events


async def measure(server: Server, streams: int, tokens: int) -> dict[str, Any]:
    """Return microseconds of CPU per request of one token, and per further chunk."""
    await run(server, min(streams, 32), 2)
    rounds = max(1, 512 // streams)
    short, short_events = await run(server, streams, 1, rounds)
    rounds_long = max(1, 4000 // (streams * tokens))
    long, long_events = await run(server, streams, tokens, rounds_long)
    per_request = short / (rounds * streams)
    chunks = long_events - short_events * rounds_long / rounds
    return {
        "streams": streams,
        "request_us": per_request * 1e6,
        "chunk_us": (long - per_request * streams * rounds_long) / chunks * 1e6,
        "chunks": int(chunks),
        "tokens_per_chunk": streams * rounds_long * (tokens - 1) / chunks,
    }


def measure_alone(streams: int, tokens: int, interval: float, path: str) -> dict[str, Any]:
    """Return what `measure` finds with a server of its own, which takes `interval` seconds a stream for a step."""
    import uvloop

    seconds = max(LEAST_INTERVAL, streams * interval)
    command = [sys.executable, __file__, "--serve", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(server.stdout.readline()) if server.stdout else 0
            # A slow client would take memory bandwidth and caches from the server.
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(measure(Server(server.pid, port, path), streams, tokens))
        finally:
            server.kill()


def main() -> None:
    """Measure, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description="CPU time of the API process per request and per streamed chunk.")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32, 1000])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--interval-us", type=float, default=150.0, help="Between two steps of the stub, per stream.")
    parser.add_argument("--api", choices=PATHS, default="openai")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--serve", type=float, metavar="SECONDS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    interval, path = args.interval_us * 1e-6, PATHS[args.api]
    results = [measure_alone(streams, args.tokens, interval, path) for streams in args.streams]
    print(f"{'streams':>8} {'us a request':>13} {'us a chunk':>11} {'tokens a chunk':>15}")
    for one in results:
        row = (one["streams"], one["request_us"], one["chunk_us"], one["tokens_per_chunk"])
        print("{:>8} {:>13.0f} {:>11.1f} {:>15.2f}".format(*row))
    if args.json:
        Path(args.json).write_text(json.dumps({"api_overhead": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
