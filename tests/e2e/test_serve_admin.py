"""A real server under administration: paused, updated, profiled, read from in parts; started as vLLM would be."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest

from core_testing.tinymodels import tiny_llama

KEY, ADMIN = "sk-e2e", "sk-e2e-admin"
BODY = {"prompt": list(range(3, 40)), "temperature": 0, "max_tokens": 60, "ignore_eos": True, "return_token_ids": True}
USUAL = "-tp 1 --distributed-executor-backend uni --disable-log-requests --enable-chunked-prefill --max-model-len 1k"


@pytest.fixture(scope="module")
def new_weights(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("new") / "llama", max_position_embeddings=1024, seed=2)


@pytest.fixture(scope="module")
def run_by_admin(launch, tiny):
    flags = ("--threads", "1", "--dtype", "float32", "--num-gpu-blocks-override", "400", *USUAL.split())
    ours = ("--weight-transfer", "disk", "--resume-seconds", "30", "--tokenizer-info")
    return launch(str(tiny), *flags, *ours, "--api-key", KEY, "--admin-api-key", ADMIN).wait_ready()


@pytest.fixture
def http(run_by_admin):
    with run_by_admin.http(headers={"x-api-key": KEY}) as client:
        yield client


@pytest.fixture
def admin(run_by_admin):
    with run_by_admin.http(headers={"x-api-key": ADMIN}) as client:
        yield client


def tokens(http, **changes):
    choice = http.post("/v1/completions", json={**BODY, **changes}).json()["choices"][0]
    return choice["token_ids"]


def events_of(lines):
    for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def ids_of(events):
    return [token for event in events for choice in event["choices"] for token in choice.get("token_ids") or ()]


def steps(admin):
    return admin.get("/server_info").json()["engine"]["steps"]


def test_a_pause_that_keeps_requests_changes_no_token(http, admin):
    wanted = tokens(http)
    with http.stream("POST", "/v1/completions", json={**BODY, "stream": True}) as response:
        events = events_of(response.iter_lines())
        got = ids_of([next(events)])
        assert admin.post("/pause", json={"mode": "keep"}).json() == {"status": "paused"}
        assert admin.get("/is_paused").json() == {"is_paused": True}
        assert http.get("/ready").status_code == 503
        counts = [steps(admin) for _ in range(8)]  # those that were launched before may still be counted
        assert len(set(counts[4:])) == 1
        assert admin.post("/resume").json() == {"status": "resumed"}
        assert got + ids_of(events) == wanted
    assert http.get("/ready").status_code == 200


def test_a_pause_that_aborts_and_one_request_alone(http, admin):
    endless = {**BODY, "stream": True, "max_tokens": 900}
    with http.stream("POST", "/v1/completions", json=endless) as response:
        events = events_of(response.iter_lines())
        name = next(events)["id"]
        assert admin.post("/abort_requests", json={"request_ids": [name]}).json() == {"aborted": [name], "unknown": []}
        assert list(events)[-1]["choices"][0]["finish_reason"] == "abort"
    with http.stream("POST", "/v1/completions", json=endless) as response:
        events = events_of(response.iter_lines())
        next(events)
        assert admin.post("/pause").json() == {"status": "paused"}
        assert list(events)[-1]["choices"][0]["finish_reason"] == "abort"
    with ThreadPoolExecutor(1) as pool:  # one that comes while it is paused waits, and can be ended too
        waiting = pool.submit(http.post, "/v1/completions", json={**BODY, "request_id": "late"})
        tries = (admin.post("/abort_requests", json={"request_ids": ["cmpl-late"]}).json() for _ in range(200))
        assert next(told for told in tries if told["aborted"] or sleep(0.02))["aborted"] == ["cmpl-late"]
        assert waiting.result(30).json()["choices"][0]["finish_reason"] == "abort"
    assert admin.post("/resume").status_code == 200
    assert len(tokens(http)) == 60


@pytest.mark.covers("WT-01")
def test_weights_are_updated_over_http(http, admin, tiny, new_weights):
    old = tokens(http)
    before = admin.get("/weight_info").json()
    assert before["engine"] == "disk"
    assert admin.post("/init_weight_transfer_engine", json={"init_info": {}}).status_code == 200
    assert admin.post("/pause", json={"mode": "keep"}).status_code == 200
    assert admin.post("/start_weight_update", json={}).status_code == 200
    update = {"update_info": {"path": str(new_weights), "version": "v2"}}
    assert admin.post("/update_weights", json=update).json() == {"status": "updated", "version": "v2"}
    assert admin.post("/finish_weight_update").json()["version"] == "v2"
    assert admin.post("/resume").status_code == 200
    new = tokens(http)
    assert new != old
    gone = admin.post("/update_weights_from_disk", json={"model_path": str(new_weights / "nothing")})
    assert (gone.status_code, gone.json()["error"]["code"]) == (400, "CORE-M150")
    assert tokens(http) == new
    back = admin.post("/update_weights_from_disk", json={"model_path": str(tiny), "weight_version": "v1"})
    assert back.json()["weight_version"] == "v1"
    assert tokens(http) == old


@pytest.mark.covers("CLI-04")
def test_the_profile_counts_steps(http, admin):
    assert admin.post("/start_profile").status_code == 200
    tokens(http)
    phases = {row["phase"]: row for row in admin.post("/stop_profile").json()["phases"]}
    assert phases["forward"]["count"] >= 60
    assert 0 < phases["forward"]["median_s"] <= phases["forward"]["p99_s"]
    assert phases["schedule"]["what"]


def test_the_prefix_cache_is_emptied(http, admin):
    body = {**BODY, "max_tokens": 1}

    def cached():
        return http.post("/v1/completions", json=body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    cached()
    assert cached() > 0
    assert admin.post("/reset_prefix_cache").json() == {"success": True}
    assert cached() == 0


def test_a_stream_is_read_in_two_parts(http):
    wanted = tokens(http, max_tokens=200)
    lines, last = [], "0"
    asked = {"x-resumable-stream": "true"}
    with http.stream(
        "POST", "/v1/completions", json={**BODY, "max_tokens": 200, "stream": True}, headers=asked
    ) as part:
        name = part.headers["x-stream-id"]
        for line in part.iter_lines():
            lines.append(line)
            if line.startswith("id: ") and len(lines) > 30:
                break
    complete = [number for number, line in enumerate(lines) if line == ""]
    lines = lines[: complete[-1] + 1]
    last = next(line.removeprefix("id: ") for line in reversed(lines) if line.startswith("id: "))
    rest = http.get(f"/v1/stream/{name}", headers={"last-event-id": last})
    lines += rest.text.splitlines()
    assert ids_of(events_of(lines)) == wanted
    numbers = [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_what_is_shown_and_what_is_not(http, admin, run_by_admin):
    info = admin.get("/server_info")
    assert KEY not in info.text
    assert info.json()["options"]["model"]["max_model_len"] == 1000
    assert http.get("/server_info").status_code == 403
    assert http.get("/v1/streams").status_code == 403
    with run_by_admin.http() as nobody:
        assert nobody.get("/server_info").status_code == 401
        assert nobody.post("/pause").status_code == 401
        assert nobody.get("/ping").status_code == 200
    (card,) = http.get("/v1/models").json()["data"]
    assert http.get(f"/v1/models/{card['id']}").json()["max_model_len"] == 1000
    assert http.get("/load").json()["server_load"] == 0
    shown = http.get("/tokenizer_info").json()
    assert shown["vocab_size"] > 0 and shown["added_tokens_decoder"]


def test_a_rendered_request_is_the_one_that_is_served(http):
    shown = http.post("/v1/completions/render", json={**BODY, "prompt": "two words"}).json()[0]
    served = http.post("/v1/completions", json={**BODY, "prompt": "two words", "max_tokens": 1}).json()
    assert shown["count"] == served["usage"]["prompt_tokens"] == len(shown["token_ids"])
    assert tokens(http, prompt=shown["token_ids"]) == tokens(http, prompt="two words")


def test_a_line_for_vllm_that_asks_for_more_is_refused_before_anything_starts(core, tiny):
    result = core("serve", tiny, "-tp", "2", timeout=30)
    assert result.returncode == 2
    assert "CORE-C105 -tp 2 is not supported. This version runs one worker" in result.stderr
