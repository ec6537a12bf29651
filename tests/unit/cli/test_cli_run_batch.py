"""`core run-batch`: lines in, lines out, and what is left of a run that did not come to its end."""

from __future__ import annotations

import asyncio
import io
import json

import httpx
import orjson
import pytest
from core_plugin_run_batch.outbox import Outbox
from core_plugin_run_batch.requests import read_requests
from core_plugin_run_batch.sender import Sender

from core.api.errors import ConfigError, CoreError
from core.cli.host.processes import Files
from core.cli.main import main


@pytest.fixture
def write(tmp_path):
    """`write(*lines)` writes a batch; dicts become JSON."""

    def write(*lines, name="in.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"".join((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines))
        return path

    return write


def line(custom_id, prompt="x", url="/v1/completions", **fields):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"prompt": prompt}, **fields}


def read(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


@pytest.fixture
def batch(stub, tmp_path, monkeypatch):
    """`batch(path, *flags)` runs the command against the stub and returns its status."""

    async def no_pause(seconds):
        pauses.append(seconds)

    pauses = []

    def batch(path, *flags):
        return main(["run-batch", "-i", str(path), "-o", str(tmp_path / "out.jsonl"), "--url", stub.url, *flags])

    monkeypatch.setattr("core_plugin_run_batch.sender.asyncio", _Asyncio(no_pause))
    batch.out, batch.errors, batch.part = (tmp_path / f"out{end}" for end in (".jsonl", ".errors.jsonl", ".jsonl.part"))
    batch.pauses = pauses
    return batch


class _Asyncio:
    """The module, with pauses that take no time."""

    TaskGroup = asyncio.TaskGroup

    def __init__(self, sleep):
        self.sleep = sleep


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b'{"custom_id": "a", "url": "/x", "body": {"t": NaN}}', "not valid JSON"),
        (b"[]", "not a JSON object"),
        ({"url": "/v1/completions", "body": {}}, "custom_id has to be"),
        (line(7), "custom_id has to be"),
        (line(""), "custom_id has to be"),
        (line("y", method="GET"), "method has to be POST"),
        (line("y", url="http://evil.example/v1"), "url has to be a path"),
        (line("y", url="/v1/x?y"), "url has to be a path"),
        (line("y", url=7), "url has to be a path"),
        (line("y", url="/pause"), "url has to be a route that answers"),
        (line("y", url="/v1/completions/../../pause"), "url has to be a route that answers"),
        (line("y", body=[]), "body has to be a JSON object"),
        (line("y", body={"stream": True}), "leave stream out"),
        (line("a"), "custom_id is that of an earlier line"),
    ],
)
def test_bad_lines_are_named_with_their_number(write, text, reason):
    requests, (bad,) = read_requests(str(write(line("a"), b"", text, line("b"))))
    assert [request.custom_id for request in requests] == ["a", "b"]
    assert str(bad).startswith("line 3: ") and reason in str(bad)
    assert bad.record()["error"]["message"] == str(bad)


def test_the_key_follows_what_a_request_means(write):
    def key(*lines):
        (request,), bad = read_requests(str(write(*lines)))
        assert not bad
        return request.key

    plain = key(b'{"custom_id": "a", "url": "/v1/x", "body": {"a": 1, "b": [1, 2]}}')
    assert key(b'\xef\xbb\xbf{"body": {"b":[1,2], "a":1}, "url": "/v1/x", "custom_id": "z"}\r') == plain
    for other in ('"/v1/y", "body": {"a": 1, "b": [1, 2]}', '"/v1/x", "body": {"a": 1, "b": [2, 1]}'):
        assert key(f'{{"custom_id": "a", "url": {other}}}'.encode()) != plain


def test_standard_input_and_files_that_are_missing(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(orjson.dumps(line("a")))))
    assert [request.custom_id for request in read_requests("-")[0]] == ["a"]
    with pytest.raises(ConfigError, match="CORE-C180"):
        read_requests(str(tmp_path / "nowhere"))


# -- the command -------------------------------------------------------------------------------------------------------


def test_answers_come_in_the_order_of_the_requests(batch, write, stub, capsys):
    stub.gap = 0.02
    path = write(*(line(f"r{index}", prompt=f"p{index}") for index in range(20)))
    assert batch(path, "--concurrency", "4", "--api-key", "k") == 0
    out = read(batch.out)
    assert [record["custom_id"] for record in out] == [f"r{index}" for index in range(20)]
    for index, record in enumerate(out):
        assert set(record) == {"id", "custom_id", "response", "error"} and record["error"] is None
        assert set(record["response"]) == {"status_code", "request_id", "body"}
        assert record["response"]["body"]["echo"] == {"prompt": f"p{index}"}
    assert len({record["id"] for record in out}) == 20
    assert 2 <= stub.most_open <= 4
    assert {headers["authorization"] for _, headers, _ in stub.requests} == {"Bearer k"}
    assert not batch.errors.exists() and not batch.part.exists()
    captured = capsys.readouterr()
    assert "20 answered, 0 failed" in captured.out and "20 of 20 requests" in captured.err


def test_what_fails_is_told_and_tried_again(batch, write, stub, capsys):
    stub.status_of = {"/v1/embeddings": 404}
    path = write(line("a"), line("b", url="/v1/embeddings"), b"{", line("c"))
    assert batch(path) == 1
    assert [record["custom_id"] for record in read(batch.out)] == ["a", "c"]
    bad, refused = read(batch.errors)
    assert bad["custom_id"] is None and bad["response"] is None and "line 3" in bad["error"]["message"]
    assert refused["custom_id"] == "b" and refused["error"] is None and refused["response"]["status_code"] == 404
    assert refused["response"]["body"] == {"error": {"message": "never"}}
    err = capsys.readouterr().err
    assert "core: line 3: not valid JSON" in err and str(batch.errors) in err
    stub.status_of, before = {}, len(stub.requests)
    assert batch(write(line("a"), line("b", url="/v1/embeddings"), line("c"))) == 0
    assert [path for path, _, _ in stub.requests[before:]] == ["/v1/embeddings"]
    assert [record["custom_id"] for record in read(batch.out)] == ["a", "b", "c"]
    assert not batch.errors.exists()
    assert "3 answered (2 of them before), 0 failed" in capsys.readouterr().out


def test_a_request_that_changed_is_asked_again(batch, write, stub):
    assert batch(write(line("a"), line("b"))) == 0
    assert batch(write(line("a", prompt="other"), line("b"))) == 0
    assert [body["prompt"] for body in stub.bodies] == ["x", "x", "other"]
    assert [record["response"]["body"]["echo"]["prompt"] for record in read(batch.out)] == ["other", "x"]


def test_the_answers_of_another_batch_stay(batch, write, stub):
    assert batch(write(line("a"), line("b"))) == 0
    assert batch(write(line("c"), line("b"))) == 0
    assert [record["custom_id"] for record in read(batch.out)] == ["a", "c", "b"]
    assert batch(write(line("c")), "--overwrite") == 0
    assert [record["custom_id"] for record in read(batch.out)] == ["c"]
    assert len(stub.bodies) == 4


def test_a_run_that_was_killed_goes_on_where_it_was(batch, write, stub):
    assert batch(write(*(line(f"r{index}") for index in range(5)))) == 0
    lines = batch.out.read_bytes().splitlines(keepends=True)
    batch.out.unlink()
    batch.part.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    assert batch(write(*(line(f"r{index}") for index in range(5)))) == 0
    assert len(stub.bodies) == 5 + 3
    assert [record["custom_id"] for record in read(batch.out)] == [f"r{index}" for index in range(5)]
    assert not batch.part.exists()


def test_a_server_that_goes_away_ends_the_run_and_keeps_the_answers(batch, write, stub, capsys, tmp_path):
    assert batch(write(line("a"))) == 0
    stub.port, port = 9, stub.port
    assert batch(write(line("a"), line("b")), "--max-retries", "1") == 1
    err = capsys.readouterr().err
    assert "CORE-S190" in err and "kept" in err and len(batch.pauses) == 1
    assert [record["custom_id"] for record in read(batch.out)] == ["a"]
    stub.port = port
    assert batch(write(line("a"), line("b"))) == 0
    assert len(stub.bodies) == 2


def test_a_full_queue_is_tried_again_with_growing_pauses(batch, write, stub):
    stub.fail, stub.failures = 503, 3
    assert batch(write(line("a"))) == 0
    assert len(batch.pauses) == 3 and batch.pauses == sorted(batch.pauses) and batch.pauses[0] < batch.pauses[2]
    stub.failures = 9
    assert batch(write(line("b")), "--max-retries", "2") == 1
    assert [record["response"]["status_code"] for record in read(batch.errors)] == [503]
    stub.fail, stub.failures, before = 400, 1, len(batch.pauses)
    assert batch(write(line("c"))) == 1
    assert len(batch.pauses) == before


def test_a_server_that_refuses_everything_ends_the_run(batch, write, stub, capsys):
    stub.fail, stub.failures = 503, 10**6
    assert batch(write(*(line(f"r{index}") for index in range(100))), "--concurrency", "2", "--max-retries", "1") == 1
    assert "CORE-S191" in (err := capsys.readouterr().err) and "503 to 8 requests in a row" in err
    assert len(stub.requests) <= 20


def test_a_wrong_key_ends_the_run(batch, write, stub, capsys):
    stub.fail, stub.failures = 401, 100
    assert batch(write(*(line(f"r{index}") for index in range(50))), "--concurrency", "2") == 1
    err = capsys.readouterr().err
    assert "CORE-S191" in err and "--api-key" in err
    assert len(stub.requests) <= 4


def test_nothing_left_starts_nothing(batch, write, monkeypatch):
    assert batch(write(line("a"))) == 0
    monkeypatch.setattr("core_plugin_run_batch.command._sender", None)
    assert batch(write(line("a"))) == 0
    assert batch(write()) == 0
    assert [record["custom_id"] for record in read(batch.out)] == ["a"]


def test_ctrl_c_keeps_what_there_is(batch, write, monkeypatch, capsys):
    async def interrupted(self, requests, results, progress):
        results.answer({"id": "k", "custom_id": "a", "response": {"status_code": 200, "body": {}}, "error": None})
        raise KeyboardInterrupt

    monkeypatch.setattr(Sender, "send_all", interrupted)
    assert batch(write(line("a"), line("b"))) == 130
    assert "1 answers kept" in capsys.readouterr().err
    assert len(read(batch.part)) == 1 and not batch.out.exists()


@pytest.mark.parametrize(
    ("flags", "needed"),
    [
        (("--model", "m"), "--url and --model"),
        (("--dtype", "float32"), "--dtype needs a model"),
        (("--port", "1"), "--port has no meaning"),
        (("--concurrency", "0"), "--concurrency"),
        (("--timeout", "0"), "--timeout"),
        (("--timeout", "nan"), "--timeout"),
        (("--max-retries", "-1"), "--max-retries"),
    ],
)
def test_flags_that_contradict_each_other(batch, write, capsys, flags, needed):
    assert batch(write(line("a")), *flags) == 2
    err = capsys.readouterr().err
    assert "CORE-C182" in err and needed in err


@pytest.mark.parametrize(("flags", "itl"), [((), 0.0), (("--max-itl-ms", "50"), 50.0)])
def test_a_server_of_its_own_keeps_no_step_short_for_readers(write, tmp_path, monkeypatch, flags, itl):
    started = []

    class Refused:
        def __init__(self, options):
            started.append(options.scheduler.max_itl_ms)
            raise CoreError("CORE-C182", "enough seen")

    monkeypatch.setattr("core.cli.local.LocalServer", Refused)
    words = ["-i", str(write(line("a"))), "-o", str(tmp_path / "out.jsonl"), "--model", "m", *flags]
    assert main(["run-batch", *words]) != 0
    assert started == [itl]


# -- files -------------------------------------------------------------------------------------------------------------


def test_something_else_is_not_overwritten(batch, write, capsys):
    batch.out.write_text("my thesis\n")
    assert batch(write(line("a"))) == 2
    assert "CORE-C181" in capsys.readouterr().err and batch.out.read_text() == "my thesis\n"
    assert not batch.part.exists()
    assert batch(write(line("a")), "--overwrite") == 0


def test_two_runs_at_a_time(batch, write, capsys):
    with Outbox(Files(), batch.out, batch.errors):
        assert batch(write(line("a"))) == 2
    assert "another run-batch" in capsys.readouterr().err
    assert batch(write(line("a"))) == 0


def test_files_that_cannot_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match="CORE-C181"):
        Outbox(Files(), blocked / "out.jsonl", tmp_path / "errors")


# -- sending -----------------------------------------------------------------------------------------------------------


class Kept(list):
    def answer(self, record):
        self.append(record)

    fail = answer

    def step(self, **what):
        pass


def send(write, handler, **options):
    """What comes of one request to a server that is a function."""
    sender = Sender("http://x", None, None, **{"concurrency": 1, "retries": 0, "timeout": None, **options})
    sender._client = lambda: httpx.AsyncClient(transport=httpx.MockTransport(handler))
    kept = Kept()
    asyncio.run(sender.send_all(read_requests(str(write(line("a"))))[0], kept, kept))
    return kept[0]


def test_an_answer_that_is_not_json(write):
    record = send(write, lambda request: httpx.Response(502, text="<html>Bad gateway</html>"))
    assert record["response"] is None and record["error"]["code"] == "not_json"
    assert "502" in record["error"]["message"] and "Bad gateway" in record["error"]["message"]


def test_an_answer_that_takes_too_long(write):
    def late(request):
        raise httpx.ReadTimeout("late")

    record = send(write, late, timeout=1.5, retries=3)
    assert record["error"] == {"code": "timeout", "message": "no answer within 1.5 s"}


def test_odd_answers_are_kept_as_they_are(write):
    for body in ([], 7, None, {"usage": 3}, {"usage": {"completion_tokens": "x"}}):
        answer = httpx.Response(200, content=orjson.dumps(body))
        assert send(write, lambda request, answer=answer: answer)["response"]["body"] == body


def test_how_long_to_wait_is_the_servers_to_say(write, monkeypatch):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    def busy(request):
        later = ["3", "soon", "", "9999"][len(pauses)] if len(pauses) < 4 else None
        return (
            httpx.Response(503, headers={"retry-after": later}) if later is not None else httpx.Response(200, json={})
        )

    monkeypatch.setattr("core_plugin_run_batch.sender.asyncio", _Asyncio(sleep))
    assert send(write, busy, retries=5)["error"] is None
    assert pauses[0] == 3 and pauses[1] < 3 and pauses[3] == 20


def test_one_address_that_is_gone_is_one_error(write):
    def gone(request):
        raise httpx.ConnectError("refused")

    with pytest.raises(CoreError, match="CORE-S190"):
        send(write, gone)
