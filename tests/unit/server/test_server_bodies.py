"""Bodies that hold too much: refused before they are parsed, while others are answered."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import pkgutil
import random
import socket
import time
from importlib.metadata import entry_points

import httpx
import orjson
import pytest
from core_plugin_admin.routes import ROUTES as ADMIN
from pydantic import BaseModel, TypeAdapter

from core.server import json_size
from core.server.body import MAX_FIELDS, parse_object
from core.server.errors import ApiError
from core.server.health import ROUTES as OPEN
from core.server.json_size import MAX_CONTAINERS, MAX_ENTRIES, MAX_MEMBERS

CHAT, COMPLETIONS, TOKENIZE = "/v1/chat/completions", "/v1/completions", "/tokenize"
USER = b'"messages": [{"role": "user", "content": "Hi"}]'
MANY = 9_000_000
GAP_SECONDS = 2.0
"""Most processor time between two turns of the event loop; what these bodies cost before was 6 s and more."""


def within(field, piece, count=MANY, start=b"[", end=b"]"):
    return b"{%s: %s%s%s}" % (field, start, (piece + b",") * (count - 1) + piece, end)


HOSTILE = {
    "empty lists": (COMPLETIONS, within(b'"prompt"', b"[]")),
    "empty objects": (COMPLETIONS, within(b'"prompt"', b"{}")),
    "ids": (COMPLETIONS, within(b'"prompt"', b"1")),
    "texts": (COMPLETIONS, within(b'"prompt"', b'""')),
    "variables": (CHAT, within(USER + b', "chat_template_kwargs": {"a"', b"1") + b"}"),
    "members": (CHAT, within(USER + b', "chat_template_kwargs"', b'"a":1', 5_000_000, b"{", b"}")),
    "messages": (CHAT, within(b'"messages"', b"{}")),
    "biases": (CHAT, within(USER + b', "logit_bias"', b'"1":1', 5_000_000, b"{", b"}")),
    "stops": (CHAT, within(USER + b', "stop"', b"1")),
    "tokens": ("/detokenize", within(b'"tokens"', b'""')),
    "unknown": (CHAT, within(USER + b', "x"', b"0")),
    "nested": (CHAT, within(USER + b', "tools"', b"[[[]]]", 4_000_000)),
}


def post(port, path, body):
    """Send a body over a socket, which costs this process next to nothing; return the answer's status and body."""
    head = "POST {} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n"
    head += "connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(head.format(path, len(body)).encode())
        sock.sendall(body)
        answer = b""
        while data := sock.recv(65536):
            answer += data
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


@contextlib.contextmanager
def gaps_of(loop):
    """Note the processor time between turns of an event loop."""
    found = []

    async def tick():
        last = time.process_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.process_time()
            found.append(now - last)
            last = now

    task = asyncio.run_coroutine_threadsafe(tick(), loop)
    yield found
    task.cancel()


@pytest.fixture(scope="module")
def server(live, fake):
    with live(fake(reply="x" * 400, delay=0.002), max_body_bytes=32 * 2**20) as running:
        yield running


@pytest.mark.parametrize("name", HOSTILE)
def test_a_body_of_many_small_things_stops_no_stream(server, name):
    path, body = HOSTILE[name]
    asked = {"prompt": "a", "stream": True, "max_tokens": 400}
    with httpx.stream("POST", f"{server.url}{COMPLETIONS}", json=asked, timeout=60) as stream:
        lines = stream.iter_lines()
        next(lines)  # it runs
        with gaps_of(server.loop) as gaps:
            status, answer = post(server.port, path, body)
        assert sum(line.startswith("data:") for line in lines) >= 399
    assert status == 400 and json.loads(answer)["error"]["code"] == "too_many_entries"
    assert max(gaps) < GAP_SECONDS


@pytest.mark.parametrize(
    ("field", "value"),
    [("prompt", [["a"]] * 30_000), ("stop", [1] * 900_000), ("bad_words", [[]] * 100_000), ("logit_bias", "members")],
)
def test_what_is_within_the_bounds_stops_no_stream_either(server, field, value):
    """Each list has a bound of its own, or ends at its first wrong member."""
    wrong = {str(number): "x" for number in range(200_000)} if value == "members" else value
    body = orjson.dumps({"prompt": "a", field: wrong})
    with gaps_of(server.loop) as gaps:
        status, answer = post(server.port, COMPLETIONS, body)
    assert status == 400 and len(answer) < 2000
    assert max(gaps) < GAP_SECONDS


# -- what is counted -----------------------------------------------------------------------------------------------


def sized(text):
    return json_size._count_outside(text)


def counted(value):
    """Count as `json_size` does, over a parsed value."""
    commas = containers = colons = 0
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, (list, dict)):
            containers += 1
            commas += max(0, len(one) - 1)
            colons += len(one) if isinstance(one, dict) else 0
            left += one.values() if isinstance(one, dict) else one
    return commas, containers, colons


def made(rng, depth=0):
    """Return a random value whose texts are full of what could be mistaken."""
    kind = rng.randrange(6 if depth < 5 else 4)
    if kind < 3:
        return "".join(rng.choice('"\\,:[]{}a\né') for _ in range(rng.randrange(12)))
    if kind == 3:
        return rng.choice([1, -2.5, None, True])
    members = [made(rng, depth + 1) for _ in range(rng.randrange(6))]
    return members if kind == 4 else {f'{number},"{{\\': member for number, member in enumerate(members)}


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 2**16])
def test_what_stands_in_texts_is_not_counted(monkeypatch, piece):
    monkeypatch.setattr(json_size, "_PIECE", piece)
    rng = random.Random(piece)
    for _ in range(150):
        value = [made(rng) for _ in range(8)]
        for raw in (orjson.dumps(value), json.dumps(value, indent=1).encode()):
            assert sized(raw) == counted(value), raw


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": list(range(131_072))},
        {"prompt": [1] * 1_000_000},
        {"input": [[7] * 500] * 2048},
        {"prompt": "a, b: [c] {d} " * 400_000},
        {"prompt": '\\",' * 1_000_000},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a,b"}]}] * 16_384},
    ],
    ids=["ids", "a million ids", "lists of ids", "a long text", "escapes", "messages"],
)
def test_honest_bodies_pass(body):
    assert parse_object(orjson.dumps(body)) == body


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        (b'{"a": [' + b"1," * (MAX_ENTRIES - 1) + b"1]}", True),
        (b'{"a": [' + b"1," * MAX_ENTRIES + b"1]}", False),
        (b'{"a": [' + b"[]," * (MAX_CONTAINERS - 3) + b"[]]}", True),
        (b'{"a": [' + b"[]," * (MAX_CONTAINERS - 2) + b"[]]}", False),
        (b'{"a": {' + b'"b":1,' * (MAX_MEMBERS - 2) + b'"b":1}}', True),
        (b'{"a": {' + b'"b":1,' * (MAX_MEMBERS - 1) + b'"b":1}}', False),
        (b"{" + b",".join(b'"%d":1' % number for number in range(MAX_FIELDS)) + b"}", True),
        (b"{" + b",".join(b'"%d":1' % number for number in range(MAX_FIELDS + 1)) + b"}", False),
        (b"[" * 200_000, False),
        (b'"' * 3_000_001, None),
        (b"\\" * 3_000_001, None),
    ],
)
def test_the_bounds(body, fits):
    if fits:
        parse_object(body)
        return
    with pytest.raises(ApiError) as caught:
        parse_object(body)
    assert caught.value.code == ("invalid_json" if fits is None else "too_many_entries")


def test_nonsense_is_told_in_little_time():
    """Bytes that are no JSON at all are read once, whatever they are."""
    rng = random.Random(0)
    for _ in range(30):
        raw = b"".join(rng.choice([b'"', b"\\", b",", b"[", b"{", b":", b"\xff", b"a"]) for _ in range(40_000)) * 20
        began = time.process_time()
        with pytest.raises(ApiError):
            parse_object(raw)
        assert time.process_time() - began < 0.5


# -- bounds before members -----------------------------------------------------------------------------------------


def lists_of(schema, path="", guarded=False):
    """Yield the schemas of lists, and of objects with free names: where they stand, and whether a check is in front."""
    if isinstance(schema, dict):
        if schema.get("type") in ("list", "dict"):
            yield path, schema, guarded
        guarded = schema.get("type") == "function-before"
        for name, part in schema.items():
            if name != "metadata":
                yield from lists_of(part, f"{path}.{name}", guarded)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            yield from lists_of(part, path)


def plugged():
    """Return what the installed route plugins read requests into: every model in their packages."""
    found = set()
    for point in entry_points(group="core.routes"):
        package = importlib.import_module(point.module.partition(".")[0])
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            found |= {one for one in vars(importlib.import_module(module.name)).values() if is_model(one, package)}
    return found


def is_model(one, package):
    own = isinstance(one, type) and one.__module__.partition(".")[0] == package.__name__
    return own and issubclass(one, BaseModel)


PLUGGED = plugged()
BODIES = {route.body for route in (*OPEN, *ADMIN) if route.body is not None} | PLUGGED


def test_the_plugins_have_bodies():
    """Those that are read without a model in between have bounds of their own (`tests/e2e/test_serve_bodies.py`)."""
    assert {"CompletionBody", "GenerateBody", "ChatBody", "EmbedBody"} <= {body.__name__ for body in PLUGGED}


@pytest.mark.parametrize("body", sorted(BODIES, key=lambda body: (body.__module__, body.__name__)))
def test_every_list_of_a_body_has_a_bound(body):
    for path, schema, guarded in lists_of(TypeAdapter(body).core_schema):
        if schema["type"] == "list":
            assert schema.get("fail_fast") and schema.get("max_length"), path
        else:  # values of any kind are never wrong; of others there could be as many mistakes as members
            assert schema["values_schema"]["type"] == "any" or guarded, path
