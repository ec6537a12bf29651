"""Counts of a streamed answer through the whole server: outputs are written where they come, and wake nobody."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from core_plugin_anthropic.manifest import ANTHROPIC
from core_plugin_anthropic.routes import AnthropicRoutes
from core_plugin_openai.manifest import OPENAI, RESPONSES
from core_plugin_openai.responses.routes import ResponsesRoutes
from core_plugin_openai.routes import OpenAIRoutes

from core.config.resolved import Options
from core.frontend.output_stream import OutputStream
from core.server.http import HttpServer
from core.server.listen import bind
from core.server.wire import Wire
from core_testing.served import served_app

TOKENS, STREAMS = 10, 4
CASES = {
    "/v1/completions": {"prompt": "a", "max_tokens": TOKENS, "ignore_eos": True},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": TOKENS, "ignore_eos": True},
    "/v1/responses": {"input": "a", "max_output_tokens": TOKENS, "ignore_eos": True},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": TOKENS},
}


@pytest.fixture
def counts(monkeypatch):
    """Calls of what a chunk may cost, by name."""
    found: Counter[str] = Counter()

    def counted(owner, name, label):
        original = getattr(owner, name)

        def call(self, *args):
            result = original(self, *args)
            found[label] += 1 if result is not False else 0
            return result

        monkeypatch.setattr(owner, name, call)

    counted(OutputStream, "_news", "waits")
    counted(Wire, "at_once", "at once")
    counted(Wire, "__call__", "by a coroutine")
    return found


async def ask(port, path, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({"model": "tiny", "stream": True, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    answer = await reader.read()
    writer.close()
    return answer.decode()


async def answers(online, path, count):
    llm, _ = online("hello world, and more of it", eos=False)
    options = Options.model_validate({"server": {"port": 0}, "model": {"model": "tiny"}})
    listener = bind(options.server)
    started = asyncio.Event()
    body = {**CASES[path], "model": llm.model_name}
    plugins = {OPENAI: OpenAIRoutes({}), RESPONSES: ResponsesRoutes({}), ANTHROPIC: AnthropicRoutes({})}
    server = HttpServer(served_app(llm, options, plugins), started.set)
    serving = asyncio.create_task(server.serve(sockets=[listener.socket]))
    try:
        await started.wait()
        port = listener.socket.getsockname()[1]
        return await asyncio.gather(*(ask(port, path, body) for _ in range(count)))
    finally:
        server.should_exit = True
        await serving
        listener.close()
        await llm.close()


@pytest.mark.parametrize("path", CASES)
def test_a_token_wakes_no_task_and_is_one_write_without_a_coroutine(online, counts, path):
    found = asyncio.run(asyncio.wait_for(answers(online, path, STREAMS), 30))
    assert all(answer.startswith("HTTP/1.1 200") and answer.count("data: ") >= TOKENS for answer in found)
    # A stream waits for its first output, behind which the head is sent, and once for all that follow.
    assert counts["waits"] <= 2 * STREAMS
    # All but the first go straight to the connection; the head, the first and the end are sent as ASGI has it.
    assert counts["at once"] >= (TOKENS - 2) * STREAMS
    assert counts["by a coroutine"] <= 4 * STREAMS
