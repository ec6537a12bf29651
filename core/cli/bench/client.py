"""`core bench client`: what the load generator itself costs, against a stub server that computes nothing.

A serving benchmark whose client is the bottleneck measures the client. This case says up to which rate it is not.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from typing import Any

import orjson


def register(cases: Any) -> None:
    """Add the case."""
    parser = cases.add_parser("client", help="Cost of the load generator itself, against a stub server.")
    group = parser.add_argument_group("benchmark")
    group.add_argument("--num-prompts", type=int, default=64, metavar="N", help="Streams open at once (default: 64).")
    group.add_argument("--output-len", type=int, default=128, metavar="N", help="Chunks of a stream (default: 128).")
    group.add_argument("--gap-ms", type=float, default=10.0, metavar="MS", help="Between chunks (default: 10).")
    group.add_argument("--output-json", metavar="FILE", help="Write the result there.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print and save."""
    from core.cli.bench.report import number, save, show

    result = measure(args.num_prompts, args.output_len, args.gap_ms / 1e3)
    show("Client", [(name.replace("_", " "), number(value)) for name, value in result.items()])
    if args.output_json:
        save(args.output_json, result)
    return 0


def measure(streams: int, chunks: int, gap: float) -> dict[str, Any]:
    """Return the client's cost: microseconds of CPU a chunk, and the chunks per second that one core could take in."""
    from core.cli.bench.load import Pace, Target, run_load, run_loop
    from core.cli.bench.prompts import Prompt

    command = [sys.executable, "-m", "core.cli.bench.client", str(chunks), str(gap)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        try:
            port = int((stub.stdout.readline() if stub.stdout else "") or 0)
            target = Target(f"http://127.0.0.1:{port}/v1/completions", ("stub",))
            prompts = [Prompt([1] * 128, chunks)] * streams
            done = run_loop(lambda: run_load(target, prompts, Pace([0.0] * streams, warmups=streams)))
        finally:
            stub.terminate()
    taken = sum(len(record.itl) + 1 for record in done.records if not record.error)
    return {
        "failed": sum(bool(record.error) for record in done.records),
        "chunks": taken,
        "chunks_per_second": taken / done.duration,
        "client_cpu_share": done.client_cpu / done.duration,
        "cpu_us_per_chunk": done.client_cpu / max(taken, 1) * 1e6,
        "max_chunks_per_second": taken / max(done.client_cpu, 1e-9),
    }


class Stub:
    """Answers every request with `chunks` events, one write each, `gap` seconds apart, all streams on one clock."""

    def __init__(self, chunks: int, gap: float) -> None:
        self._count, self._gap = chunks, gap
        event = orjson.dumps({"id": "cmpl-0", "object": "text_completion", "choices": [{"index": 0, "text": " word"}]})
        usage = orjson.dumps({"choices": [], "usage": {"prompt_tokens": 128, "completion_tokens": chunks}})
        self._event = _chunk(event)
        self._end = _chunk(usage) + _chunk(b"[DONE]") + b"0\r\n\r\n"
        self._streams: dict[asyncio.StreamWriter, int] = {}

    async def main(self) -> None:
        """Serve until the process ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        while True:
            await asyncio.sleep(self._gap)
            for writer, left in list(self._streams.items()):
                writer.write(self._event if left > 1 else self._event + self._end)
                if left > 1:
                    self._streams[writer] = left - 1
                else:
                    del self._streams[writer]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
                )
                await reader.readexactly(length)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                self._streams[writer] = self._count
        except (ConnectionError, asyncio.IncompleteReadError):
            self._streams.pop(writer, None)
            writer.close()


def _chunk(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


if __name__ == "__main__":
    asyncio.run(Stub(int(sys.argv[1]), float(sys.argv[2])).main())
