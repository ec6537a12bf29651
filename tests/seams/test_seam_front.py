"""Sinks, routes and commands of plugins."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import httpx
import pytest

from core import LLM, AsyncLLM, SamplingParams
from core.api import Caller, PluginError, RequestError
from core.cli import main as cli
from core.config.resolved import Options
from core.plugins.active import enter
from core.selection.resolver import resolve
from core.server.app import create_app
from core.server.plugin_routes.table import RouteTable

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


def test_sinks_see_figures_and_finished_requests_offline(plugins, llama, prompt, caplog):
    plugins("sinks")
    options = {"stat_sink": ["broken", "memory"], "plugin_options": {"memory": {"colour": "red"}}}
    with LLM(llama, dtype="float32", num_blocks=60, **options) as llm:
        llm.generate([prompt(9), prompt(40)], GREEDY.replace(n=2))
        from seam_sinks.sinks import TOLD

        assert TOLD[0] == ("options", {"colour": "red"})
        assert "close" not in dict(TOLD)
    finished = {told.prompt_tokens: told for kind, told in TOLD if kind == "finished"}
    stats = next(told for kind, told in TOLD if kind == "stats")
    assert TOLD[-1][0] == "close"
    assert set(finished) == {9, 40}
    one = finished[40]
    assert one.output_tokens == 12 and one.finish_reasons == ("length", "length") and one.cached_tokens == 0
    assert 0 <= one.queue_seconds <= one.first_token_seconds <= one.total_seconds < 60
    assert stats.blocks_total == 59 and stats.scheduled_tokens > 0
    assert "CORE-P161 stat sink 'broken' (seam-sinks 1.0): record() or finished() raised RuntimeError" in caplog.text


def test_figures_come_each_second_even_when_nothing_runs(plugins, llama, prompt):
    plugins("sinks")

    async def scenario():
        llm = await AsyncLLM.start(llama, in_process=True, dtype="float32", num_blocks=60, stat_sink=["memory"])
        try:
            begin = time.monotonic()
            async for _ in llm.generate(prompt(9), GREEDY):
                pass
            while sum(kind == "stats" for kind, _ in told()) < 3 and time.monotonic() < begin + 60:
                await asyncio.sleep(0.05)
            return time.monotonic() - begin
        finally:
            await llm.close()

    def told():
        from seam_sinks.sinks import TOLD

        return TOLD

    assert 1.5 < asyncio.run(scenario()) < 12
    assert told()[-1][0] == "close"


# -- routes ------------------------------------------------------------------------------------------------------------


def _select(llama, *routes):
    select = {"route": list(routes)}
    return Options.model_validate(
        {"model": {"model": llama, "dtype": "float32"}, "kv": {"num_blocks": 60}, "select": select}
    )


@pytest.fixture
def ask(plugins, llama):
    """`ask(method, path, ...)` a server with the `echo` routes."""
    plugins("routes")

    def make(method, path, *, key=None, **request):
        async def scenario():
            options = _select(llama, "echo")
            if key is not None:
                options = options.model_copy(update={"server": options.server.model_copy(update={"api_key": key})})
            resolution = await asyncio.to_thread(resolve, options)
            routes = RouteTable.declare(enter(resolution.config.plan))
            from core.engine.client import open_async

            llm = AsyncLLM(resolution, await open_async(resolution.config, in_process=True))
            try:
                app = create_app(llm, options, defaults={"temperature": 0.0}, plugin_routes=routes.routes)
                routes.bind(app.state.core)
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://core") as client:
                    return await client.request(method, path, **request)
            finally:
                await llm.close()

        return asyncio.run(scenario())

    return make


def test_a_route_answers_under_its_prefix(ask):
    answer = ask("GET", "/x/echo/hi", params={"times": "2"})
    assert answer.status_code == 200 and answer.headers["x-echo"] == "yes" and answer.headers["x-request-id"]
    assert answer.json() == {"word": "hi", "times": "2", "model": "llama"}


def test_a_route_generates_and_streams(ask):
    answer = ask("POST", "/x/echo", json={"prompt": "the engine reads"})
    assert answer.json()["reason"] == "length" and answer.json()["text"]
    assert ask("GET", "/x/echo/stream/now").text == "onetwo"


@pytest.mark.parametrize(
    ("word", "status", "text"),
    [("shout", 418, "not so loud"), ("break", 500, "CORE-P108"), ("nothing", 500, "CORE-P108")],
)
def test_what_a_route_raises_is_answered_without_its_inside(ask, word, status, text):
    answer = ask("GET", f"/x/echo/{word}")
    assert answer.status_code == status
    assert text in answer.text and "secret" not in answer.text


def test_the_key_is_asked_for_on_every_route(ask):
    assert ask("GET", "/x/echo/hi", key="k").status_code == 401
    assert ask("GET", "/x/echo/hi", key="k", headers={"x-api-key": "k"}).status_code == 200


def test_a_body_is_held_to_the_servers_limits(ask):
    assert ask("POST", "/x/echo", content=b"[1", headers={"content-type": "application/json"}).status_code == 400
    from_a_page = {"content-type": "text/plain", "origin": "http://elsewhere"}
    assert ask("POST", "/x/echo", content=b"{}", headers=from_a_page).status_code == 415


def test_routes_are_served_only_when_asked_for(plugins, llama):
    """But those that are served wherever they are installed."""
    plugins("routes")
    served = {one.name for one in resolve(_select(llama)).config.plan.of("core.routes")}
    assert served == {"admin", "anthropic", "openai", "pooling", "responses", "resumable"}


def test_a_route_outside_its_prefix_stops_the_start(plugins, llama):
    plugins("routes")
    active = enter(resolve(_select(llama, "greedy")).config.plan)
    with pytest.raises(PluginError, match=r"CORE-P130 .*'greedy' \(seam-routes 1.0\) .*GET /v1/models: .*/x/greedy/"):
        RouteTable.declare(active)


@pytest.mark.parametrize(
    ("method", "path", "why"),
    [
        ("GET", "/x/echo/{other}", "route plugin 'echo' .* has declared it"),
        ("GET", "/x/echoes", "its routes lie under /x/echo/"),
        ("BREW", "/x/echo/tea", "methods are GET"),
    ],
)
def test_a_route_that_cannot_be_is_refused(plugins, llama, method, path, why):
    plugins("routes")
    table = RouteTable.declare(enter(resolve(_select(llama, "echo")).config.plan))
    from core.server.plugin_routes.registry import PluginRoutes

    with pytest.raises(PluginError, match=why):
        PluginRoutes(table, "echo", "'other'").add(method, path, None)


# -- commands ----------------------------------------------------------------------------------------------------------


def test_a_command_of_a_plugin_runs(plugins, capsys):
    plugins("command")
    assert cli.main(["greet", "you", "--times", "2"]) == 0
    assert capsys.readouterr().out == "hello you\nhello you\n"
    assert cli.main(["greet", "you", "--times", "0"]) == 3


def test_errors_of_a_command_are_one_line(plugins, capsys):
    plugins("command")
    assert cli.main(["greet", "nobody"]) == 1
    assert capsys.readouterr().err == "core: SEAM-1 there is nobody here.\n"
    assert cli.main(["greet", "error"]) == 1
    assert "CORE-P108 command 'greet' (seam-command 1.0): run() raised KeyError" in capsys.readouterr().err
    assert cli.main(["greet"]) == 2


def test_a_command_is_listed_and_proposed_without_being_imported(plugins, capsys):
    plugins("command")
    assert cli.main(["gret"]) == 2
    assert "Did you mean 'greet'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "From seam-command 1.0." in capsys.readouterr().out
    assert not any(name.startswith("seam_command") for name in sys.modules)


def test_a_case_of_one_of_core_s_commands(plugins, capsys):
    """A plugin cannot replace a case of core's; its own is listed with the others, and imported when it is used."""
    plugins("command")
    assert cli.main(["bench"]) == 0
    told = capsys.readouterr().out
    assert "greet" in told and "From seam-command 1.0." in told and "Seconds from process start" in told
    assert not any(name.startswith("seam_command") for name in sys.modules)
    assert cli.main(["bench", "greet", "you", "--times", "2"]) == 0
    assert capsys.readouterr().out == "measured you\nmeasured you\n"
    assert cli.main(["bench", "greet", "you", "--time", "2"]) == 2
    assert "unknown flag --time" in capsys.readouterr().err
    assert cli.main(["bench-greet", "you"]) == 0
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "bench-greet" not in capsys.readouterr().out


def test_only_the_command_that_is_asked_for_is_imported(plugins):
    plugins("command", "routes", "sinks")
    code = (
        "import sys, json; from core.cli.main import main; main(['greet', 'x']); "
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "seam_command" in loaded
    assert not {"seam_routes", "seam_sinks", "torch", "fastapi", "core_plugin_cpu"} & set(loaded)


def test_a_command_that_cannot_be_imported_says_so(plugins, capsys):
    plugins("command")
    assert cli.main(["untouched"]) == 1
    error = capsys.readouterr().err
    assert "CORE-P103" in error and "seam_untouched" in error and "`core untouched`" in error


def test_who_asks_is_seen_by_hooks_policies_and_sinks_offline(plugins, llama, prompt):
    plugins("hooks", "policy", "sinks")
    options = {"dtype": "float32", "num_blocks": 60, "scheduling_policy": "gentle", "stat_sink": ["memory"]}
    callers = [Caller("ann"), Caller("bob", "key-0")]
    with LLM(llama, **options) as llm:
        llm.generate([prompt(8), prompt(9)], GREEDY, caller=callers)
        llm.chat([[{"role": "user", "content": "a"}]], GREEDY, caller=Caller("eve"))
        llm.generate([prompt(8)], GREEDY)
        with pytest.raises(RequestError, match="caller has 1 entries for 2 prompts"):
            llm.generate([prompt(8), prompt(9)], GREEDY, caller=callers[:1])
    from seam_hooks.hooks import CALLS
    from seam_policy.policy import ASKED
    from seam_sinks.sinks import TOLD

    due = [*callers, Caller("eve"), Caller()]
    assert CALLS["callers"] == ASKED["callers"] == due
    finished = [record.caller for what, record in TOLD if what == "finished"]
    assert sorted(finished, key=lambda one: one.user) == sorted(due, key=lambda one: one.user)
