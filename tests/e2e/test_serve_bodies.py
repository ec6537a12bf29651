"""Bodies that hold too much, beside a client that streams: the stream goes on, memory stays, the engine lives."""

from __future__ import annotations

import random
import threading
import time

import httpx
import msgspec
import orjson
import psutil
import pytest
import zmq

FLAGS = (
    "--threads",
    "1",
    "--dtype",
    "float32",
    "--num-blocks",
    "400",
    "--served-model-name",
    "tiny",
    "--route",
    "generate",
)
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = b'{"messages": [{"role": "user", "content": "a"}], '
GAP_SECONDS = 1.0
"""Most processor time of the API process between two events of the stream; 6 s and more before there were bounds."""
MEMORY_BYTES = 250 * 2**20
"""Most that the API process may keep of bodies of 30 MB: two of them, and what the allocator holds."""


def body(start, piece, count, end):
    return start + (piece + b",") * (count - 1) + piece + end


HOSTILE = {
    "empty lists": (COMPLETIONS, body(b'{"prompt": [', b"[]", 10_000_000, b"]}"), 400),
    "variables": (CHAT, body(USER + b'"chat_template_kwargs": {"a": [', b"1", 10_000_000, b"]}}"), 400),
    "input_ids": ("/generate", body(b'{"input_ids": [', b"[]", 10_000_000, b"]}"), 400),
    "ids": ("/generate", body(b'{"input_ids": [', b"1", 10_000_000, b"]}"), 400),
    "text": ("/tokenize", b'{"prompt": "' + b"word, " * 2_500_000 + b'"}', 400),
    "plain text": (COMPLETIONS, b'{"prompt": "' + b"word, " * 2_500_000 + b'"}', 400),
    "other text": ("/generate", b'{"text": "' + b"word, " * 2_500_000 + b'"}', 400),
    "pieces": ("/completion", body(b'{"prompt": [', b'"word"', 1_000_000, b"]}"), 400),
    "ids as text": ("/detokenize", body(b'{"tokens": [', b"1", 1_000_000, b"]}"), 400),
}


@pytest.fixture(scope="module")
def served(launch, tiny):
    return launch(str(tiny), *FLAGS).wait_ready()


@pytest.fixture
def beside(served):
    """`beside(work)` runs it while a client streams; it returns the largest gap, in the server's processor time."""

    def run(work):
        me, gaps, begun, done = psutil.Process(served.process.pid), [], threading.Event(), threading.Event()

        def follow():
            asked = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True}
            with served.http() as http:
                while not done.is_set():
                    with http.stream("POST", COMPLETIONS, json=asked) as stream:
                        last = sum(me.cpu_times()[:2])
                        for line in stream.iter_lines():
                            begun.set()
                            if line:
                                now = sum(me.cpu_times()[:2])
                                gaps.append(now - last)
                                last = now
                            if done.is_set():
                                return

        thread = threading.Thread(target=follow)
        thread.start()
        try:
            assert begun.wait(60)
            work()
        finally:
            done.set()
            thread.join(60)
        return max(gaps)

    return run


def post(served, path, content):
    with httpx.Client(base_url=served.url, timeout=120, trust_env=False) as http:
        return http.post(path, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize("name", HOSTILE)
def test_a_body_hurts_nobody_else(served, beside, name):
    path, content, status = HOSTILE[name]
    process, engine = psutil.Process(served.process.pid), served.engine().pid
    answers = []
    before = process.memory_info().rss
    gap = beside(lambda: answers.extend(post(served, path, content) for _ in range(2)))
    assert [answer.status_code for answer in answers] == [status] * 2, answers[0].text[:300]
    assert gap < GAP_SECONDS
    assert process.memory_info().rss - before < MEMORY_BYTES
    assert served.engine().pid == engine and served.process.poll() is None


def test_four_long_texts_at_a_time_leave_no_memory(served, beside):
    """Of every length: what fits is counted, one text after the other, and what cannot fit is refused unread."""
    process = psutil.Process(served.process.pid)
    before = process.memory_info().rss

    def work():
        texts = [orjson.dumps({"prompt": "word, " * count}) for count in (2_500_000,) * 4 + (1500, 3000, 6000, 12_000)]
        threads = [threading.Thread(target=post, args=(served, "/tokenize", text)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)

    assert beside(work) < GAP_SECONDS
    assert process.memory_info().rss - before < MEMORY_BYTES


FIELDS = ("prompt", "messages", "stop", "tokens", "logit_bias", "tools", "chat_template_kwargs", "input", "text", "x")
PIECES = (
    b"[]",
    b"{}",
    b"1",
    b'""',
    b'"a"',
    b'{"a":1}',
    b"[[[]]]",
    b"null",
    b"1.5",
    b'"\\""',
    b'{"a":{"b":[]}}',
    b"[1,2]",
)
PATHS = (COMPLETIONS, CHAT, "/tokenize", "/detokenize", "/v1/messages", "/v1/responses", "/generate", "/completion")


@pytest.mark.parametrize("seed", range(4))
def test_bodies_of_any_shape(served, beside, seed):
    rng = random.Random(seed)

    def work():
        for _ in range(8):
            piece = rng.choice(PIECES)
            wraps = rng.choice(
                [(b"[", b"]"), (b"[[", b"]]"), (b'{"a":[', b"]}"), (b'[{"role":"user","content":[', b"]}]")]
            )
            field = rng.choice(FIELDS).encode()
            count = rng.choice([2**10, 2**14, 2**17, 2**19, 2**20]) if rng.random() < 0.7 else 2**23 // len(piece)
            content = body(b'{"%s": %s' % (field, wraps[0]), piece, count, wraps[1] + b"}")
            answer = post(served, rng.choice(PATHS), content)
            assert answer.status_code in (200, 400, 413), answer.text[:300]

    began = time.monotonic()
    process = psutil.Process(served.process.pid)
    before = process.memory_info().rss
    assert beside(work) < GAP_SECONDS, time.monotonic() - began
    assert process.memory_info().rss - before < MEMORY_BYTES


WRONG_MESSAGES = (
    b"",
    b"\x91" * 100_000,
    msgspec.msgpack.encode({"type": "outputs", "handles": bytes(8)}),
    msgspec.msgpack.encode({"type": "outputs", "handles": bytes(8), "tokens": b"\xff\xff\xff\x7f"}),
    msgspec.msgpack.encode({"type": "outputs", "finished": [[1, "tired"]]}),
    msgspec.msgpack.encode({"type": "outputs", "stats": {"running": -1}}),
    msgspec.msgpack.encode({"type": "pulse", "stalled": -1.0}),
    msgspec.msgpack.encode({"type": "failed", "error": {"code": 3}}),
)


@pytest.mark.covers("ENG-06")
def test_wrong_messages_on_the_private_socket_are_counted_by_metrics(served):
    before = served.gauges()["core_dropped_messages_total"]
    sockets = {one.laddr for one in psutil.Process(served.process.pid).net_connections("unix")}
    (outbox,) = {path for path in sockets if path.endswith("/out")}
    with zmq.Context() as context, context.socket(zmq.PUSH) as stranger:
        stranger.connect(f"ipc://{outbox}")
        body = {"prompt": "a", "stream": True, "max_tokens": 300, "ignore_eos": True}
        with served.http() as http, http.stream("POST", COMPLETIONS, json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            for message in WRONG_MESSAGES:
                stranger.send(message)
            said = [line for line in lines if line.startswith("data:")]
    assert said[-1] == "data: [DONE]" and '"finish_reason":"length"' in said[-2]
    deadline = time.monotonic() + 30
    while served.gauges()["core_dropped_messages_total"] - before != len(WRONG_MESSAGES):
        assert time.monotonic() < deadline, served.gauges()["core_dropped_messages_total"]
        time.sleep(0.05)
