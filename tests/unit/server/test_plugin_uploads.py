"""Forms that routes of plugins read: their bounds hold while they arrive, and no file stays open."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from pydantic import BaseModel

from core.api import RequestError, RouteForm, RouteResponse, RouteSpec
from core_testing.served import served_app

BOUNDARY = "edge"
TYPE = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
SPEC = RouteSpec(name="scribe", impl="x:Y", api=1, summary="s")


class ScribeBody(BaseModel):
    model: str


class Scribe:
    """Says what a form holds."""

    def __init__(self):
        self.files = []
        self.begun = asyncio.Event()

    def declare(self, registry):
        registry.add("POST", "/x/scribe", self.scribe, body=ScribeBody, takes="multipart/form-data")
        registry.add("POST", "/x/scribe/small", self.small)
        registry.add("POST", "/x/scribe/fails", self.fails)
        registry.add("POST", "/x/scribe/waits", self.waits)
        registry.add("POST", "/x/scribe/pieces", self.pieces)

    def bind(self, client):
        pass

    async def scribe(self, request):
        form = await request.form()
        file = form.file("file")
        self.files.append(file)
        start, rest = await file.read(3), await file.read()
        await file.seek(1)
        said = {"name": file.name, "type": file.media_type, "size": file.size, "text": (start + rest).decode()}
        again = (await file.read(2)).decode()
        texts = {name: list(values) for name, values in form.texts.items()}
        return RouteResponse(json.dumps({**said, "again": again, "texts": texts}).encode())

    async def small(self, request):
        form = await request.form(limit=3000, part_limit=1000, max_parts=3)
        self.files += form.files.get("file", ())
        return RouteResponse(b"[%d]" % sum(file.size for file in self.files))

    async def fails(self, request):
        self.files.append((await request.form()).file("file"))
        raise KeyError("oh")

    async def waits(self, request):
        self.files.append((await request.form()).file("file"))
        self.begun.set()
        await asyncio.sleep(60)

    async def pieces(self, request):
        file = (await request.form()).file("file")
        self.files.append(file)

        async def pieces():
            while piece := await file.read(2):
                yield piece

        return RouteResponse(pieces())


@pytest.fixture
def scribe(llm, options):
    plugin = Scribe()
    app = served_app(llm, options(max_body_bytes=4_000_000, api_key="k"), {SPEC: plugin})
    return Asked(app, plugin)


class Asked:
    def __init__(self, app, plugin):
        self.app, self.plugin = app, plugin

    def __call__(self, path="/x/scribe", *, headers=None, **body):
        async def go():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.post(path, headers={"authorization": "Bearer k", **(headers or {})}, **body)

        return asyncio.run(go())

    def closed(self):
        return [file._file.file.closed for file in self.plugin.files]


def part(name, content, filename=None):
    more = "" if filename is None else f'; filename="{filename}"'
    return f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{content}\r\n'


def whole(*parts):
    return ("".join(parts) + f"--{BOUNDARY}--\r\n").encode()


def test_a_form_has_texts_and_files(scribe):
    data = {"model": "m", "granularities[]": ["word", "segment"]}
    answer = scribe(data=data, files={"file": ("../a.wav", b"sounds", "audio/wav")})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "name": "../a.wav",
        "type": "audio/wav",
        "size": 6,
        "text": "sounds",
        "again": "ou",
        "texts": {"model": ["m"], "granularities[]": ["word", "segment"]},
    }
    assert scribe.closed() == [True]


def test_a_large_file_is_read_from_disk_and_closed(scribe):
    answer = scribe(files={"file": ("a", b"x" * 3_000_000)})
    assert (answer.json()["size"], len(answer.json()["text"])) == (3_000_000, 3_000_000)
    assert scribe.closed() == [True]


def test_a_file_is_open_while_the_answer_streams(scribe):
    assert scribe("/x/scribe/pieces", files={"file": ("a", b"abcde")}).content == b"abcde"
    assert scribe.closed() == [True]


def test_a_file_is_closed_where_the_endpoint_fails(scribe):
    answer = scribe("/x/scribe/fails", files={"file": ("a", b"abc")})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "CORE-P108")
    assert scribe.closed() == [True]


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (whole(part("file", "x" * 1000, "a")), 200, None, None),
        (whole(part("file", "x" * 1001, "a")), 413, "part_too_large", "file"),
        (whole(part("note", "x" * 1001)), 413, "part_too_large", "note"),
        (whole(part("<b>", "x" * 1001)), 413, "part_too_large", None),
        (whole(*[part("file", "x", "a")] * 3), 200, None, None),
        (whole(*[part("n", "x")] * 2, *[part("file", "x", "a")] * 2), 413, "too_many_parts", None),
        (whole(*[part("n", "x" * 999)] * 3), 413, "body_too_large", None),
    ],
)
@pytest.mark.parametrize("announced", [True, False])
def test_bounds_hold_whether_a_length_is_announced_or_not(scribe, body, status, code, param, announced):
    async def pieces():
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    answer = scribe("/x/scribe/small", content=body if announced else pieces(), headers=TYPE)
    assert answer.status_code == status, answer.text
    if code is not None:
        assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == (code, param)
    assert all(scribe.closed())


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "application/json"}, b"{}", 415),
        ({}, b"a=b", 415),
        ({"content-type": "multipart/form-data"}, whole(part("a", "b")), 400),
        ({"content-type": "multipart/form-data; boundary="}, whole(part("a", "b")), 400),
        ({"content-type": f"multipart/form-data; boundary={'b' * 9000}"}, b"", 400),
        (TYPE, b"", 400),
        (TYPE, b"no form", 400),
        (TYPE, whole(part("file", "b", "a"))[:-12], 400),
        (TYPE, whole(part("file", "b", "a"))[:-4], 400),
        (TYPE, f"--{BOUNDARY}\r\n\r\nnameless\r\n--{BOUNDARY}--\r\n".encode(), 400),
        (TYPE, whole(part("other", "b", "a")), 400),
        (TYPE, whole(part("file", "a text")), 400),
        (TYPE, whole(*[part("file", "b", "a")] * 2), 400),
        (TYPE, whole(part("x", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"))), 400),
    ],
)
def test_what_is_no_form_is_the_clients_fault(scribe, headers, body, status):
    answer = scribe(content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert all(scribe.closed())


def test_clients_are_told_of_forms(scribe):
    body = scribe.app.openapi()["paths"]["/x/scribe"]["post"]["requestBody"]["content"]
    assert list(body) == ["multipart/form-data"]


def test_a_form_needs_the_key(scribe):
    answer = scribe(files={"file": ("a", b"b")}, headers={"authorization": "Bearer other"})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://test", "sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_pages_of_other_origins_send_no_forms(scribe, headers, status):
    assert scribe(files={"file": ("a", b"b")}, headers=headers).status_code == status


def test_an_allowed_page_sends_forms(llm, options):
    app = served_app(llm, options(api_key="k", allowed_origins=["http://app.example"]), {SPEC: Scribe()})
    ask = Asked(app, None)
    sent = {"files": {"file": ("a", b"b")}}
    assert ask(**sent, headers={"origin": "http://app.example"}).status_code == 200
    assert ask(**sent, headers={"origin": "http://evil.example"}).status_code == 403


def asgi(app, path, messages, sent):
    """Return what sends a request's messages, and then nothing."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"content-type", TYPE["content-type"].encode()), (b"authorization", b"Bearer k")],
    }

    async def receive():
        message = messages.pop(0) if messages else asyncio.Event()
        if isinstance(message, asyncio.Event):
            await message.wait()
            return {"type": "http.disconnect"}
        return message

    async def send(message):
        sent.append(message)

    return app(scope, receive, send)


def test_a_client_that_leaves_in_its_form_is_no_fault_of_the_plugin(scribe, caplog):
    sent, first = [], whole(part("file", "x" * 500, "a"))[:300]
    messages = [{"type": "http.request", "body": first, "more_body": True}, {"type": "http.disconnect"}]
    asyncio.run(asgi(scribe.app, "/x/scribe", messages, sent))
    assert not sent and "CORE-P108" not in caplog.text


def test_a_file_is_closed_when_its_client_leaves(scribe):
    async def go():
        body = {"type": "http.request", "body": whole(part("file", "x", "a")), "more_body": False}
        await asyncio.wait_for(asgi(scribe.app, "/x/scribe/waits", [body, scribe.plugin.begun], []), 30)

    asyncio.run(go())
    assert scribe.closed() == [True]


def test_a_form_says_what_is_missing():
    form = RouteForm({"a": ["1"], "b": ["1", "2"]}, {})
    assert (form.text("a"), form.text("z")) == ("1", None)
    for ask, name in ((form.text, "b"), (form.file, "a")):
        with pytest.raises(RequestError) as error:
            ask(name)
        assert (error.value.param, error.value.status) == (name, 400)
    with pytest.raises(RequestError, match="not a file"):
        RouteForm({}, {"f": [object()]}).text("f")
