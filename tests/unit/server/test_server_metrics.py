"""/metrics: hand-computed figures, and a page that clients cannot make grow."""

import asyncio
import random
import re
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
    llm.config, told = Planned("attic", 'odd"\n'), [{"attic": {"kept": 3, "lost": 0}, 'odd"\n': {"a b": -1}}]

    async def call(method, *args):
        assert method == "connector_stats"
        if isinstance(told[-1], Exception):
            raise told[-1]
        return told[-1] or await asyncio.Event().wait()

    monkeypatch.setattr(llm, "call", call, raising=False)
    monkeypatch.setattr(metrics, "PATIENCE", 0.01)
    api = build(llm)
    page = api.get("/metrics").text
    assert "# TYPE core_kv_connector_stat untyped\n" in page
    samples = [line for line in page.splitlines() if line.startswith("core_kv_connector_stat{")]
    assert samples == [
        'core_kv_connector_stat{connector="attic",model_name="acme/tiny",stat="kept"} 3.0',
        'core_kv_connector_stat{connector="attic",model_name="acme/tiny",stat="lost"} 0.0',
        r'core_kv_connector_stat{connector="odd\"\n",model_name="acme/tiny",stat="a b"} -1.0',
    ]
    for silence in (EngineError("CORE-E181", "the engine died."), None):
        told.append(silence)
        assert figures(api)['core_kv_connector_stat{connector="attic",stat="kept"}'] == 3, "as last told"


@pytest.mark.parametrize("config", [None, Planned()])
def test_without_connectors_the_engine_is_not_asked(build, fake, monkeypatch, config):
    llm, asked = fake(), []
    llm.config = config
    monkeypatch.setattr(llm, "call", lambda *given: asked.append(given), raising=False)
    assert "core_kv_connector" not in build(llm).get("/metrics").text
    assert asked == []
