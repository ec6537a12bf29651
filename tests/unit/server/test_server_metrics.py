"""/metrics: hand-computed figures, and a page that clients cannot make grow."""

import asyncio
import random
import re
import socket
import string

import pytest

from core.api import EngineError
from core.plugins.plan import PlannedPlugin, PluginPlan
from core.server import metrics

USER = [{"role": "user", "content": "Hi"}]


MODEL = 'model_name="acme/tiny"'


def figures(api, *, own=True):
    """The samples by name and labels; of `own` ones without the model's name, which all of them have."""
    lines = [line for line in api.get("/metrics").text.splitlines() if not line.startswith("#")]
    pairs = [line.rpartition(" ")[::2] for line in lines if not own or line.startswith("core_")]
    if own:
        assert all(MODEL in name for name, _ in pairs)
        pairs = [(re.sub(f"{{{MODEL}}}|,{MODEL}|{MODEL},", "", name), value) for name, value in pairs]
    return {name: float(value) for name, value in pairs}


@pytest.mark.covers("OBS-04")
def test_figures_of_a_scripted_run(build, fake):
    llm = fake(reply=["abc", "de"], cached=1)
    api = build(llm)
    api.post("/v1/completions", {"prompt": "xy", "n": 2})
    api.post("/v1/completions", {"prompt": "xy", "max_tokens": 1})
    api.post("/v1/completions", {"prompt": ""})
    found = figures(api)
    assert found["core_prompt_tokens_total"] == 6
    assert found["core_prompt_tokens_cached_total"] == 2
    assert found["core_generation_tokens_total"] == 6
    assert found['core_request_success_total{finished_reason="stop"}'] == 2
    assert found['core_request_success_total{finished_reason="length"}'] == 1
    assert found["core_time_to_first_token_seconds_count"] == 3
    assert found["core_inter_token_latency_seconds_count"] == 3
    assert found["core_e2e_request_latency_seconds_count"] == 2
    assert found["core_request_generation_tokens_sum"] == 6
    assert found['core_http_requests_total{route="/v1/completions",status="200"}'] == 2
    assert found['core_http_requests_total{route="/v1/completions",status="400"}'] == 1


def test_the_engines_own_figures(build, llm):
    api = build(llm)
    llm.stats.running, llm.stats.waiting, llm.stats.blocks_used = 3, 2, 4
    llm.stats.preemptions, llm.stats.prefix_queries, llm.stats.prefix_hits = 5, 100, 60
    found = figures(api)
    assert found["core_num_requests_running"] == 3
    assert found["core_num_requests_waiting"] == 2
    assert found["core_kv_cache_usage_perc"] == 0.4
    assert found["core_num_preemptions_total"] == 5
    assert (found["core_prefix_cache_queries_total"], found["core_prefix_cache_hits_total"]) == (100, 60)
    assert found["core_engine_healthy"] == 1


def test_rejections_are_counted(build, llm):
    api = build(llm, max_waiting=1)
    llm.stats.waiting = 1
    assert api.post("/v1/completions", {"prompt": "a"}).status_code == 503
    assert figures(api)['core_admission_rejections_total{reason="queue_full"}'] == 1


@pytest.mark.covers("OBS-04")
def test_the_page_does_not_grow_with_what_clients_invent(build, llm):
    api = build(llm)
    pick = random.Random(3)

    def word():
        return "".join(pick.choices(string.ascii_letters, k=8))

    def noise(rounds):
        for _ in range(rounds):
            api.get(f"/{word()}/{word()}")
            api.request(word().upper(), "/v1/models")
            api.request(word().upper(), f"/{word()}")
            api.get(f"/v1/models/{word()}")
            api.post("/v1/completions", {"prompt": "secret prompt", "model": word()})
            api.post("/v1/completions", {"prompt": "a", word(): word()}, headers={"x-request-id": word()})
        page = api.get("/metrics").text
        return {line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")}, page

    noise(1)
    first, _ = noise(1)
    second, page = noise(60)
    assert first == second
    assert "secret" not in page


def test_two_servers_do_not_share_figures(build, fake):
    first, second = build(fake()), build(fake())
    first.post("/v1/completions", {"prompt": "a"})
    assert figures(first)["core_generation_tokens_total"] == 5
    assert figures(second)["core_generation_tokens_total"] == 0


class Planned:
    """A configuration of which only the plan is asked for."""

    def __init__(self, *connectors):
        drivers = [
            PlannedPlugin(group="core.kv_connectors", name=name, value="a:B", dist="acme", version="1", api=1)
            for name in connectors
        ]
        self.plan = PluginPlan(drivers=tuple(drivers))


@pytest.mark.covers("OBS-04")
def test_connectors_tell_their_own_figures(build, fake, monkeypatch):
    llm = fake()
    llm.config, told = Planned("attic", 'odd"\n'), [{"attic": {"kept": 3, "lost": [0, 2]}, 'odd"\n': {"a b": -1}}]

    async def call(method, *args):
        assert method == "participant_stats"
        if isinstance(told[-1], Exception):
            raise told[-1]
        return told[-1] or await asyncio.Event().wait()

    monkeypatch.setattr(llm, "call", call, raising=False)
    monkeypatch.setattr(metrics, "PATIENCE", 0.01)
    api = build(llm)
    page = api.get("/metrics").text
    assert "# TYPE core_participant_stat untyped\n" in page
    samples = [line for line in page.splitlines() if line.startswith("core_participant_stat{")]
    assert samples == [
        'core_participant_stat{model_name="acme/tiny",participant="attic",place="",stat="kept"} 3.0',
        'core_participant_stat{model_name="acme/tiny",participant="attic",place="0",stat="lost"} 0.0',
        'core_participant_stat{model_name="acme/tiny",participant="attic",place="1",stat="lost"} 2.0',
        r'core_participant_stat{model_name="acme/tiny",participant="odd\"\n",place="",stat="a b"} -1.0',
    ]
    for silence in (EngineError("CORE-E181", "the engine died."), None):
        told.append(silence)
        assert figures(api)['core_participant_stat{participant="attic",place="",stat="kept"}'] == 3, "as last told"


@pytest.mark.parametrize("config", [None, Planned()])
def test_without_connectors_the_engine_is_not_asked(build, fake, monkeypatch, config):
    llm, asked = fake(), []
    llm.config = config
    monkeypatch.setattr(llm, "call", lambda *given: asked.append(given), raising=False)
    assert "core_kv_connector" not in build(llm).get("/metrics").text
    assert asked == []


TIMES = {"arrival_time": 1.0, "first_scheduled_time": 1.5, "first_token_time": 3.5, "last_token_time": 9.5}
PHASES = ("queue_time", "prefill_time", "decode_time", "inference_time", "time_per_output_token")


@pytest.mark.covers("OBS-04")
@pytest.mark.parametrize(
    ("times", "sums"),
    [
        (TIMES, [0.5, 2.0, 6.0, 8.0, 1.5]),
        ({"arrival_time": 1.0}, [None] * 5),
        ({"arrival_time": 1.0, "first_scheduled_time": 2.0}, [1.0, None, None, None, None]),
    ],
)
def test_phases_are_counted_once_a_request_by_its_own_times(build, fake, monkeypatch, times, sums):
    llm, whole = fake(reply="abcde"), fake._outputs

    async def outputs(self, *given):
        async for output in whole(self, *given):
            output.finished, output.metrics = output.outputs[0].finish_reason is not None, times
            yield output

    monkeypatch.setattr(fake, "_outputs", outputs)
    api = build(llm)
    api.post("/v1/completions", {"prompt": "x"})
    found = figures(api)
    for phase, seconds in zip(PHASES, sums, strict=True):
        name = f"core_request_{phase}_seconds"
        assert (found[f"{name}_count"], found[f"{name}_sum"]) == ((1, seconds) if seconds else (0, 0)), phase


def lengthy(api):
    return api.post("/v1/completions", {"prompt": "x" * 600})


REFUSED = [
    ("missing_api_key", lambda api: api.get("/v1/models", headers={"authorization": ""})),
    ("invalid_api_key", lambda api: api.get("/v1/models", headers={"authorization": "Bearer no"})),
    ("admin_key", lambda api: api.post("/pause")),
    ("too_long", lengthy),
    ("too_long", lambda api: api.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 600}]})),
    ("model_not_found", lambda api: api.post("/v1/completions", {"prompt": "a", "model": "other"})),
    ("invalid_json", lambda api: api.raw("/v1/completions", b"{")),
    ("invalid_request", lambda api: api.post("/v1/completions", {"prompt": 1.5})),
    ("invalid_request", lambda api: api.post("/v1/completions", {"prompt": "a", "temperature": -1})),
    ("body_too_large", lambda api: api.raw("/v1/completions", b"x" * 300_000)),
    ("body_too_complex", lambda api: api.raw("/v1/completions", b'{"a":' * 90 + b"1" + b"}" * 90)),
    ("unsupported_media_type", lambda api: api.post("/v1/completions", content=b"{}")),
    (
        "unsupported_parameter",
        lambda api: api.post("/v1/completions", {"prompt": "a", "response_format": {"type": "json_object"}}),
    ),
    ("route_not_found", lambda api: api.get("/nowhere")),
    ("method_not_allowed", lambda api: api.get("/v1/completions")),
]


@pytest.mark.covers("OBS-04")
@pytest.mark.parametrize(("reason", "ask"), REFUSED)
def test_each_refusal_is_counted_once_by_its_reason(build, llm, reason, ask):
    api = build(llm, api_key="sk", admin_api_key="admin")
    api.headers["authorization"] = "Bearer sk"
    assert api.get("/v1/models").status_code == 200
    assert ask(api).status_code >= 400
    assert refused(api) == {reason: 1}


def refused(api):
    begin = "core_admission_rejections_total{reason="
    return {name[len(begin) + 1 : -2]: value for name, value in figures(api).items() if name.startswith(begin)}


@pytest.mark.covers("OBS-04")
@pytest.mark.parametrize(
    ("reason", "states"),
    [
        ("draining", {"draining": True}),
        ("engine", {"healthy": False}),
        ("queue_full", {"waiting": 64}),
    ],
)
def test_refusals_of_the_moment(build, llm, reason, states):
    api = build(llm)
    api.app.state.core.lifecycle.draining = states.get("draining", False)
    llm.healthy, llm.stats.waiting = states.get("healthy", True), states.get("waiting", 0)
    assert api.post("/v1/completions", {"prompt": "a"}).status_code == 503
    assert api.post("/v1/chat/completions", {"messages": USER, "stream": True}).status_code == 503
    assert refused(api) == {reason: 2}


@pytest.mark.covers("OBS-04")
def test_a_request_that_fails_in_the_engine_is_no_refusal_but_a_grammar_that_is_too_big_is(build, fake):
    api = build(fake(row_error="numbers"))
    assert api.post("/v1/completions", {"prompt": "a"}).status_code == 500
    assert refused(api) == {}
    assert figures(api)['core_request_success_total{finished_reason="error"}'] == 1
    api = build(fake(row_error="CORE-E162: too big", grammars=True))
    held = {"prompt": "a", "response_format": {"type": "json_object"}}
    assert api.post("/v1/completions", held).status_code == 400
    assert refused(api) == {"grammar": 1}


@pytest.mark.covers("OBS-04")
def test_what_is_refused_before_any_route_is_counted_too(live, fake, build):
    with live(fake()) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"NONSENSE\r\n\r\n")
        assert b" 400 " in client.recv(4096)
        page = server.state.metrics.render().decode()
    assert 'core_admission_rejections_total{model_name="acme/tiny",reason="invalid_http"} 1.0' in page
    api = build(fake(), allowed_origins=["https://good.example"])
    asked = {"origin": "https://bad.example", "access-control-request-method": "POST"}
    assert api.request("OPTIONS", "/v1/completions", headers=asked).status_code == 400
    assert refused(api) == {"cors": 1}


@pytest.mark.covers("OBS-04")
@pytest.mark.parametrize("public", [True, False])
def test_the_page_is_shown_without_a_key_where_the_operator_says_so(build, llm, public):
    api = build(llm, api_key="sk", public_metrics=public)
    assert api.get("/metrics").status_code == (200 if public else 401)
    assert api.post("/metrics").status_code == 401 and api.get("/load").status_code == 401


def test_probes_by_the_names_of_kubernetes(build, llm):
    api = build(llm, api_key="sk")
    assert (api.get("/livez").status_code, api.get("/readyz").status_code) == (200, 200)
    api.app.state.core.lifecycle.draining = True
    assert (api.get("/livez").status_code, api.get("/readyz").status_code) == (200, 503)
    assert api.get("/readyz").json()["error"]["code"] == "draining"
    api.headers["authorization"] = "Bearer sk"
    assert refused(api) == {}, "a probe is no request that was refused"
