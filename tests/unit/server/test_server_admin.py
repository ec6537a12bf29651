"""Admin routes over a scripted front end: what they call, what they answer, what they refuse."""

from __future__ import annotations

import io
import logging
import time

import pytest
from core_plugin_admin.absent import ABSENT

from core import logs
from core.api.errors import CheckpointError, EngineError
from core.config.resolved import Options, SelectOptions
from core.options.server import ServerOptions
from core.server.secrets import HIDDEN, shown

KEY = "sk-admin"


@pytest.fixture
def llm(fake):
    class Scripted(fake):
        def __post_init__(self):
            super().__post_init__()
            self.calls, self.answers, self.request_ids = [], {}, ["chatcmpl-a", "cmpl-b-0", "cmpl-b-1", "cmpl-c"]

        async def pause_generation(self, mode="abort", *, clear_cache=True):
            self.calls.append(("pause", mode, clear_cache))
            self.paused = True

        async def resume_generation(self):
            self.paused = False

        async def abort(self, name):
            self.calls.append(("abort", name))

        async def call(self, method, *args):
            self.calls.append((method, *args))
            answer = self.answers.get(method)
            if isinstance(answer, Exception):
                raise answer
            return answer

    return Scripted()


@pytest.fixture
def admin(llm, build):
    api = build(llm, admin_api_key=KEY)
    api.headers = {"x-api-key": KEY}
    return api


@pytest.fixture
def updating(llm, app_of):
    """An application whose engine can take weights."""
    options = Options(server=ServerOptions(admin_api_key=KEY), select=SelectOptions(weight_transfer="disk"))

    def make(api_type):
        return api_type(app_of(llm, options), {"x-api-key": KEY})

    return make


def code(response):
    return response.status_code, response.json()["error"]["code"]


def test_pause_and_resume(admin, llm):
    assert admin.get("/is_paused").json() == {"is_paused": False}
    assert admin.post("/pause").json() == {"status": "paused"}
    assert admin.get("/is_paused").json() == {"is_paused": True}
    assert code(admin.get("/ready")) == (503, "paused")
    assert admin.get("/health").status_code == 200
    assert admin.post("/resume").json() == {"status": "resumed"}
    assert admin.get("/ready").status_code == 200
    admin.post("/pause?mode=wait&clear_cache=false")
    admin.post("/pause", {"mode": "keep"})
    assert llm.calls == [("pause", "abort", True), ("pause", "wait", False), ("pause", "keep", True)]


def test_a_server_that_ends_is_not_paused(admin, llm):
    admin.app.state.core.lifecycle.draining = True
    assert code(admin.post("/pause", {"mode": "keep"})) == (503, "draining")
    assert llm.calls == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/pause", {"mode": "gently"}, "mode"),
        ("/pause?mode=x", None, "mode"),
        ("/pause", {"moode": "keep"}, "moode"),
        ("/resume", {"now": True}, "now"),
        ("/abort_requests", {}, "request_ids"),
        ("/abort_requests", {"request_ids": ["a"], "abort_all": True}, "request_ids"),
        ("/abort_requests", {"request_ids": "a"}, "request_ids"),
        ("/reset_prefix_cache?reset_running_requests=true", None, "reset_running_requests"),
    ],
)
def test_fields_that_mean_nothing_are_refused(admin, llm, path, body, param):
    refused = admin.post(path, body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert llm.calls == []


def test_a_form_of_a_browser_is_no_body(admin):
    refused = admin.post("/pause", content=b"mode=keep", headers={"content-type": "application/x-www-form-urlencoded"})
    assert code(refused) == (415, "unsupported_media_type")


def test_abort_by_the_ids_of_answers(admin, llm):
    state = admin.app.state.core
    state.shown = {"chatcmpl-a": "chatcmpl-a", "cmpl-b": "cmpl-b", "cmpl-c": "cmpl-mine"}
    done = admin.post("/abort_requests", {"request_ids": ["cmpl-b", "chatcmpl-a", "cmpl-c", "nobody"]}).json()
    assert done == {"aborted": ["chatcmpl-a", "cmpl-b"], "unknown": ["cmpl-c", "nobody"]}
    assert llm.calls == [("abort", name) for name in ("chatcmpl-a", "cmpl-b-0", "cmpl-b-1")]
    llm.calls.clear()
    assert admin.post("/abort_requests", {"request_ids": ["cmpl-mine"]}).json()["aborted"] == ["cmpl-mine"]
    assert llm.calls == [("abort", "cmpl-c")]
    assert len(admin.post("/abort_requests", {"abort_all": True}).json()["aborted"]) == 3
    assert len(llm.calls) == 1 + 4


@pytest.mark.parametrize("names", [["cmpl-b-0-3"], ["cmpl-b-1-12-0", "cmpl-b-0"]])
def test_a_beam_search_is_ended_by_the_id_of_its_answer(admin, llm, names):
    """Its sequences are requests of their own, with numbers behind the answer's name."""
    admin.app.state.core.shown = {"cmpl-b": "cmpl-mine"}
    llm.request_ids = [*names, "cmpl-c-0"]
    done = admin.post("/abort_requests", {"request_ids": ["cmpl-mine", "cmpl-b"]}).json()
    assert done == {"aborted": ["cmpl-mine"], "unknown": ["cmpl-b"]}
    assert llm.calls == [("abort", name) for name in names]


def test_the_cache_and_the_profile(admin, llm):
    assert admin.post("/reset_prefix_cache").json() == {"success": True}
    assert code(admin.post("/stop_profile")) == (409, "no_profile")
    assert admin.post("/start_profile").json() == {"status": "started"}
    assert code(admin.post("/start_profile")) == (409, "profile_running")
    llm.answers["profile"] = {"forward": [10, 0.5, 0.04, 0.09]}
    (row,) = admin.post("/stop_profile").json()["phases"]
    assert (row["phase"], row["count"], row["total_s"], row["p99_s"]) == ("forward", 10, 0.5, 0.09)
    assert row["what"]
    assert llm.calls == [("reset_prefix_cache",), ("profile", True), ("profile", False)]


def test_drain_begins_the_end_once(admin, caplog):
    lifecycle, begun = admin.app.state.core.lifecycle, []

    def drain():
        begun.append(True)
        lifecycle.refuse()

    lifecycle.drain = drain
    answer = {"status": "draining", "in_flight": 0, "at_most_s": admin.app.state.core.options.server.drain_timeout}
    assert admin.post("/drain").json() == admin.post("/drain").json() == answer
    assert begun == [True] and "ends by an admin request" in caplog.text
    assert code(admin.get("/ready")) == (503, "draining")
    assert code(admin.post("/v1/completions", {"prompt": "a"})) == (503, "draining")
    assert code(admin.post("/drain", {"now": True}))[0] == 400


def test_the_log_of_both_processes_without_secrets(llm, build, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    said = {"level": "info", "logger": "core.engine.loop", "process": "engine"}
    tools = {"mcp_headers": {"search": {"Authorization": "Bearer abcdef"}}}
    api = build(llm, admin_api_key=KEY, api_key="short")
    state = api.app.state.core
    state.options = state.options.model_copy(update={"tools": state.options.tools.model_copy(update=tools)})
    api.headers = {"x-api-key": KEY}
    logs.setup("info", process="api", stream=io.StringIO())
    logging.getLogger("core.server.x").warning("%s and Bearer abcdef, short", KEY)
    now = time.time()
    llm.answers["recent_log"] = [
        {**said, "time": now - 60, "message": "first"},
        {**said, "time": now + 60, "message": "last"},
    ]
    shown = api.get("/server_log?lines=3").json()
    assert shown["kept"] == logs.RECENT_LINES
    assert [line["message"] for line in shown["lines"]] == ["first", f"{HIDDEN} and {HIDDEN}, short", "last"]
    assert (shown["lines"][1]["process"], shown["lines"][1]["level"]) == ("api", "warning")
    assert [line["message"] for line in api.get("/server_log?lines=1").json()["lines"]] == ["last"]
    for begun in range(1, len(KEY)):  # a key in which a long message is cut
        said["message"] = ("x" * (logs.RECENT_CHARS - begun) + KEY)[: logs.RECENT_CHARS]
        llm.answers["recent_log"] = [{**said, "time": now + 60}]
        assert set(api.get("/server_log?lines=1").json()["lines"][0]["message"]) == {"x"}
    llm.answers["recent_log"] = EngineError("CORE-E181", "it is gone")
    assert len(api.get("/server_log").json()["lines"]) == 1
    llm.healthy = False
    llm.calls.clear()
    assert len(api.get("/server_log").json()["lines"]) == 1 and llm.calls == []
    for wrong in ("0", "1001", "x"):
        assert api.get(f"/server_log?lines={wrong}").json()["error"]["param"] == "lines"


def test_weights_step_by_step(updating, llm, api):
    admin = updating(type(api))
    llm.answers = {"update_weights": "v2", "worker": "v2"}
    assert admin.post("/init_weight_transfer_engine", {"init_info": {}}).json()["engine"] == "disk"
    assert code(admin.post("/update_weights", {"update_info": {"path": "/w"}})) == (409, "no_weight_update")
    assert code(admin.post("/finish_weight_update")) == (409, "no_weight_update")
    assert admin.post("/start_weight_update", {"is_checkpoint_format": True}).status_code == 200
    assert admin.get("/weight_info").json() == {
        "version": "v2",
        "lost_version": None,
        "engine": "disk",
        "update_open": True,
    }
    assert code(admin.post("/start_weight_update")) == (409, "weight_update_open")
    assert code(admin.post("/update_weights_from_disk", {"model_path": "/w"})) == (409, "weight_update_open")
    assert admin.post("/update_weights", {"update_info": {"path": "/w"}}).json() == {
        "status": "updated",
        "version": "v2",
    }
    assert admin.post("/finish_weight_update").json() == {"status": "finished", "version": "v2"}
    assert ("update_weights", {"path": "/w"}) in llm.calls
    assert admin.post("/start_weight_update").status_code == 200


def test_weights_at_once_and_what_is_wrong_with_them(updating, llm, api):
    admin = updating(type(api))
    llm.answers = {"update_weights": "v3"}
    done = admin.post("/update_weights_from_disk", {"model_path": "/w", "weight_version": "v3"}).json()
    assert (done["success"], done["weight_version"]) == (True, "v3")
    assert llm.calls == [("update_weights", {"path": "/w", "version": "v3"})]
    llm.answers = {"update_weights": CheckpointError("CORE-M150", "The weight update cannot be read: it is gone.")}
    assert code(admin.post("/update_weights_from_disk", {"model_path": "/w"})) == (400, "CORE-M150")
    llm.answers = {"update_weights": EngineError("CORE-E141", "failed")}
    assert code(admin.post("/update_weights_from_disk", {"model_path": "/w"})) == (503, "CORE-E141")
    assert code(admin.post("/start_weight_update", {"is_checkpoint_format": False})) == (501, "not_implemented")
    refused = admin.post("/init_weight_transfer_engine", {"init_info": {"master_address": "x"}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "init_info")


def test_without_a_weight_transfer_engine(admin):
    for path, body in (
        ("/init_weight_transfer_engine", None),
        ("/start_weight_update", None),
        ("/update_weights", {"update_info": {}}),
        ("/finish_weight_update", None),
        ("/update_weights_from_disk", {"model_path": "/w"}),
    ):
        refused = admin.post(path, body)
        assert code(refused) == (501, "not_implemented")
        assert "--weight-transfer" in refused.json()["error"]["message"]
    assert admin.get("/get_world_size").json() == {"world_size": 1}


@pytest.mark.parametrize("path", sorted(ABSENT))
def test_what_there_is_not_says_so(admin, path):
    refused = admin.post(path, {"lora_name": "x"})
    assert code(refused) == (501, "not_implemented")
    assert refused.json()["error"]["message"] == ABSENT[path]


def test_the_engine_never_sleeps_and_methods_are_not_exposed(admin):
    assert admin.get("/is_sleeping").json() == {"is_sleeping": False}
    assert admin.post("/collective_rpc", {"method": "x"}).status_code == 404


def test_server_info_has_no_secrets(llm, build):
    api = build(llm, admin_api_key=KEY, api_key="sk-plain")
    answer = api.get("/server_info", headers={"x-api-key": KEY})
    info = answer.json()
    assert KEY not in answer.text and "sk-plain" not in answer.text
    assert info["options"]["server"]["api_key"] == info["options"]["server"]["admin_api_key"] == HIDDEN
    assert info["options"]["kv"]["hash_seed"] is None
    assert info["model"] == {"id": llm.model_name, "max_model_len": llm.max_model_len}
    assert info["state"]["ready"] is True and info["engine"]["blocks_total"] == 10


def test_secrets_of_plugins_are_hidden_by_their_names():
    given = {"store": {"access_key": "a", "Password": "b", "nested": {"auth_token": "c", "size": 3}, "path": "/x"}}
    plain = shown(Options.model_validate({"runtime": {"plugin_options": given}, "kv": {"hash_seed": "s"}}))
    assert plain["kv"]["hash_seed"] == HIDDEN
    assert plain["runtime"]["plugin_options"] == {
        "store": {"access_key": HIDDEN, "Password": HIDDEN, "nested": {"auth_token": HIDDEN, "size": 3}, "path": "/x"}
    }


def test_ping_and_load(api, llm):
    assert api.get("/ping").json() == api.post("/ping").json() == {"status": "ok"}
    llm.stats.running, llm.stats.waiting = 3, 2
    assert api.get("/load").json() == {"server_load": 0, "running": 3, "waiting": 2}


def test_load_counts_generations_in_flight(live, fake, until):
    import httpx

    llm = fake("Hello", hold_at=2)
    with live(llm) as server, httpx.Client(base_url=server.url, trust_env=False) as http:
        body = {"prompt": "x", "stream": True}
        with http.stream("POST", "/v1/completions", json=body):
            assert httpx.get(f"{server.url}/load", trust_env=False).json()["server_load"] == 1
            llm.held.set()
        until(lambda: not server.state.lifecycle.work)
        assert http.get("/load").json()["server_load"] == 0
