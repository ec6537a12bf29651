"""Each check of web sockets and figures finds the route plugin that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import RouteSpec

SPEC = RouteSpec(name="broken", impl="PKG.routes:Routes", api=1, summary="s")
"""

ROUTES = """
import asyncio
import itertools
import json
from core.api import Figure, FigureSample, RequestError, RouteResponse

COUNT = itertools.count()

class Routes:
    def __init__(self, options):
        self.kept, self.words = [], 0

    def declare(self, registry):
        registry.socket("/x/broken/talk/{room}", self.talk)
        registry.socket("/x/broken/closed", self.closed)
        registry.figures(NAMES, self.figures)
        {declare}

    def bind(self, client):
        self.client = client

    async def closed(self, ws):
        raise RequestError("not today", status=409)

    async def talk(self, ws):
        {early}
        await ws.accept()
        while (said := await ws.receive()) is not None:
            {said}
            if not isinstance(said, str):
                await ws.close(1003, "texts")
                return
            self.words += 1
            {generate}
            async for output in self.client.generate(said):
                text = output.text
            await ws.send(json.dumps({"text": text}))
        {late}

    def figures(self, core):
        yield Figure("broken_words", "Words.", "counter", [FigureSample(self.words)])
        {figures}

NAMES = ["broken_words"]
"""

SAMPLES = """
from core_testing.conformance import SocketSample

def samples():
    yield SocketSample("a word", "/x/broken/talk/a", ["hi", "you"], answer=b'kit"}{"text": "kit')
    yield SocketSample("bytes", "/x/broken/talk/a", [b"hi"], code=1003)
    yield SocketSample("refused", "/x/broken/closed", status=409, answer=b"not today")
    yield SocketSample("none", "/x/broken/nowhere", status=404)
"""

LOOP = """
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if self.kept: raise
                self.kept.append(1)"""
DETACHED = """
            async def read():
                async for output in self.client.generate(said): await asyncio.sleep(30)
            self.kept.append(asyncio.ensure_future(read()))"""

CASES = {
    "routes_are_declared": {"declare": "registry.figures([f'broken_{next(COUNT)}'], lambda core: [])"},
    "sockets_say_what_samples_say": {"generate": "if said == 'you': continue"},
    "strange_messages_are_the_clients_fault": {"said": "if said[:1] == '{': json.loads(said)['x'].append(1)"},
    "sockets_end_with_either_side": {"late": LOOP},
    "figures_can_be_shown": {"figures": "yield Figure('broken_more', 'Words.', 'gauge', [FigureSample(1)])"},
}


@pytest.fixture
def sockets(make_plugin):
    def make(samples: str = SAMPLES, **given: str):
        source = ROUTES
        for key in ("declare", "early", "said", "generate", "late", "figures"):
            source = source.replace("{" + key + "}", given.get(key, "pass"))
        return make_plugin("core.routes", {"manifest": MANIFEST, "routes": source, "conformance": samples})

    return make


def test_a_sound_plugin_without_routes_passes(sockets):
    report = sockets().report("routes", "route_sockets", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


# It waits until what never ends is given up. The same check finds a generation that outlives its socket, sooner.
WAITING = ("sockets_end_with_either_side",)


@pytest.mark.parametrize(
    "check", [pytest.param(check, marks=pytest.mark.exhaustive if check in WAITING else ()) for check in CASES]
)
def test_sockets_and_figures(sockets, check):
    assert set(sockets(**CASES[check]).failing("routes", "route_sockets")) == {check}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"said": "raise RequestError('no')"}, "lacks"),
        ({"early": "raise RequestError('no')"}, "status 400, not 101"),
        ({"said": "if isinstance(said, bytes): await ws.close(4000)"}, "closed with 4000, not 1003"),
    ],
)
def test_what_samples_do_not_say_is_caught(sockets, given, told):
    assert told in sockets(**given).failing("route_sockets")["sockets_say_what_samples_say"]


def test_a_path_that_is_taken_for_a_number_is_caught(sockets):
    early = "int(ws.path_params['room'], 36) if ws.path_params['room'] != 'a' else 0"
    failing = sockets(early=early).failing("route_sockets")
    assert "raises something else" in failing["strange_messages_are_the_clients_fault"]


def test_a_generation_that_outlives_its_socket_is_caught(sockets):
    failing = sockets(generate=DETACHED).failing("route_sockets")
    assert "generations of socket /x/broken/talk/a go on" in failing["sockets_end_with_either_side"]


@pytest.mark.exhaustive
def test_an_endpoint_that_never_looks_whether_its_client_is_there_is_ended(sockets):
    assert sockets(late="while True: await ws.receive()").report("route_sockets").failures == []


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ("raise KeyError('lost')", "KeyError"),
        ("yield Figure('broken_words', 'Words.', 'gauge', [FigureSample('many')])", "twice"),
    ],
)
def test_figures_that_cannot_be_shown_are_caught(sockets, figures, told):
    assert told in sockets(figures=figures).failing("route_sockets")["figures_can_be_shown"]


def test_a_figure_of_cores_is_caught(sockets):
    failing = sockets(declare="registry.figures(['core_words'], self.figures)").failing("routes")
    assert "core has those" in failing["routes_are_declared"]


def test_sockets_without_samples_stay_at_l0(sockets):
    report = sockets("def samples(): return []\n").report("manifest", "routes", "route_sockets")
    assert report.level == Level.L0 and "it ships no SocketSample" in str(report.not_run[0])
