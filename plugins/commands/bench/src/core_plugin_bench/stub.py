"""A server that streams words without computing any: `python -m core_plugin_bench.stub CHUNKS GAP_SECONDS`."""

from __future__ import annotations

import asyncio
import sys

import orjson


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
