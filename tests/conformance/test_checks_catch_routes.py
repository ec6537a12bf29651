"""Each check of route plugins finds the plugin that is wrong in its way, and only that check does."""

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
from core.api import Dialect, RequestError, RouteResponse

COUNT = itertools.count()

class Routes:
    def __init__(self, options):
        self.kept = []

    def declare(self, registry):
        {declare}
        registry.add("GET", "/x/broken/models", self.models)
        registry.add("GET", "/x/broken/words/{word}", self.word, summary="A word")
        registry.add("POST", "/x/broken", self.generate)
        registry.add("POST", "/x/broken/stream", self.stream)
        registry.add("POST", "/x/broken/file", self.file, takes="multipart/form-data")

    def bind(self, client):
        self.client = client

    async def models(self, request):
        {models}
        return RouteResponse(json.dumps([self.client.model_name, self.client.healthy]).encode())

    async def word(self, request):
        return RouteResponse(request.path_params["word"].encode(), media_type="text/plain")

    async def generate(self, request):
        body = await request.json()
        {check}
        if not isinstance(body.get("prompt"), str):
            raise RequestError("prompt must be a text", param="prompt")
        {generate}
        async for output in self.client.generate(body["prompt"]):
            text = output.text
        return RouteResponse(json.dumps({"text": text}).encode())

    async def file(self, request):
        form = await request.form()
        {form}
        return RouteResponse(await form.file("file").read(), media_type="text/plain")

    async def stream(self, request):
        body = await request.json()
        if not isinstance(body.get("prompt"), str):
            raise RequestError("prompt must be a text", param="prompt")
        {stream}

        async def pieces():
            async for output in self.client.generate(body["prompt"]):
                yield output.text.encode()

        return RouteResponse(pieces(), media_type="text/plain")
"""

SAMPLES = """
from core_testing.conformance import RouteSample

def samples():
    yield RouteSample("which model", "GET", "/x/broken/models", answer=b'["kit", true]')
    yield RouteSample("a generation", "POST", "/x/broken", {"prompt": "say"}, answer=b'"text": "kit"')
    yield RouteSample("a stream", "POST", "/x/broken/stream", {"prompt": "say"}, answer=b"kit")
    yield RouteSample("a file", "POST", "/x/broken/file", form={"file": b"\\xff", "n": "5"}, answer=b"\\xff")
    yield RouteSample("no file", "POST", "/x/broken/file", form={"file": "x"}, status=400, answer=b"file")
    yield RouteSample("no prompt", "POST", "/x/broken", {}, status=400, answer=b"prompt must be a text")
    yield RouteSample("a method that it lacks", "DELETE", "/x/broken", status=405)
"""

CASES = {
    "routes_are_declared": {
        "declare": "if next(COUNT) % 2: registry.add('GET', f'/x/broken/{next(COUNT)}', self.models)"
    },
    "errors_have_the_declared_form": {
        "declare": "registry.dialect(Dialect(lambda error: {'text': error.message, 'p': error.param[0]}))"
    },
    "no_route_hides_another": {"declare": "registry.add('GET', '/x/broken/{any}', self.models)"},
    "samples_are_answered": {"models": "if self.client.healthy: return RouteResponse(b'[\"kit\"]')"},
    "strange_requests_are_the_clients_fault": {
        "check": "len(body.get('text', ()) or ()); body['x'] if 'n' in body else 0"
    },
    "generations_are_ended": {
        "generate": "self.kept.append(self.client.generate(body['prompt'])); await anext(self.kept[-1])"
    },
}


LAYERED = {
    "status": """
        async def told(message):
            await send({**message, "status": 200} if message["type"] == "http.response.start" else message)
        await app(scope, receive, told)""",
    "headers": """
        async def told(message):
            await send({**message, "headers": []} if message["type"] == "http.response.start" else message)
        await app(scope, receive, told)""",
    "its end does not": """
        async def deaf():
            message = await receive()
            if message["type"] == "http.disconnect": await asyncio.sleep(60)
            return message
        await app(scope, deaf, send)""",
    "has left": """
        async def mild():
            message = await receive()
            return message if message["type"] == "http.request" else {"type": "http.request"}
        await app(scope, mild if scope["path"] == "/kit" else receive, send)""",
    "swallows": """
        try:
            await app(scope, receive, send)
        except Exception:
            return""",
    "of RequestError": """
        try:
            await app(scope, receive, send)
        except Exception as error:
            raise ValueError("hidden") from error""",
    "b'one": """
        async def twice(message):
            await send(message)
            if message.get("more_body"): await send(message)
        await app(scope, receive, twice)""",
}


@pytest.fixture
def routes(make_plugin):
    def make(samples: str = SAMPLES, **given: str):
        source = ROUTES
        for key in ("declare", "models", "check", "generate", "form", "stream"):
            source = source.replace("{" + key + "}", given.get(key, "pass"))
        return make_plugin("core.routes", {"manifest": MANIFEST, "routes": source, "conformance": samples})

    return make


def test_a_sound_plugin_passes(routes):
    report = routes().report("routes", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize("check", CASES)
def test_routes(routes, check):
    assert set(routes(**CASES[check]).failing("routes")) == {check}


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        ("registry.add('GET', '/v1/models', self.models)", "its routes lie under /x/broken/"),
        ("registry.add('GET', '/x/broker/models', self.models)", "its routes lie under /x/broken/"),
        ("registry.add('BREW', '/x/broken/coffee', self.models)", "methods are GET, POST"),
        ("registry.add('GET', '/x/broken/models', self.models)", "has declared it"),
        ("return", "it declares no route"),
    ],
)
def test_declarations_that_cannot_be_are_caught(routes, declare, told):
    assert told in routes(declare=declare).failing("routes")["routes_are_declared"]


@pytest.mark.parametrize(
    "form",
    ["int(form.text('n') or 0)", "form.texts['n']", "[part.decode() for part in [await form.file('file').read()]]"],
)
def test_forms_that_are_not_read_with_care_are_caught(routes, form):
    assert "strange_requests_are_the_clients_fault" in routes(form=form).failing("routes")


MOUNTED = MANIFEST.replace('summary="s"', 'summary="s", mounts=("/broken", "/"), public=("/broken", "/")')


def test_a_plugin_with_claims_and_assets_passes(make_plugin):
    declare = (
        "registry.asset('/', b'page', 'text/html')\n"
        "        registry.dialect(Dialect(lambda error: {'error': error.message}))\n"
        "        registry.add('POST', '/broken/again', self.generate)"
    )
    source = ROUTES.replace("{declare}", declare)
    for key in ("models", "check", "generate", "form", "stream"):
        source = source.replace("{" + key + "}", "pass")
    report = make_plugin("core.routes", {"manifest": MOUNTED, "routes": source, "conformance": SAMPLES}).report(
        "routes"
    )
    assert report.failures == []


@pytest.mark.parametrize(
    ("mounts", "declare", "told"),
    [
        ('("/health/more",)', "pass", "/health is core's own"),
        ('("/ui",)', "registry.asset('/ui/x', b'', 'text/css')", "not name the path among `public`"),
        ('("/ui",), public=("/ui",)', "registry.asset('/ui/x', b'%d' % next(COUNT), 'text/css')", "another one"),
    ],
)
def test_claims_that_cannot_be_are_caught(make_plugin, mounts, declare, told):
    source = ROUTES.replace("{declare}", declare)
    for key in ("models", "check", "generate", "form", "stream"):
        source = source.replace("{" + key + "}", "pass")
    manifest = MANIFEST.replace('summary="s"', f'summary="s", mounts={mounts}')
    made = make_plugin("core.routes", {"manifest": manifest, "routes": source, "conformance": SAMPLES})
    assert told in made.failing("routes")["routes_are_declared"]


def test_a_generation_that_outlives_its_client_is_caught(routes):
    detached = (
        "queue = asyncio.Queue()\n"
        "        async def read():\n"
        "            async for output in self.client.generate(body['prompt']): queue.put_nowait(output)\n"
        "            queue.put_nowait(None)\n"
        "        self.kept.append(asyncio.ensure_future(read()))\n"
        "        async def detached():\n"
        "            while (output := await queue.get()) is not None: yield output.text.encode()\n"
        "        return RouteResponse(detached())"
    )
    failing = routes(stream=detached).failing("routes")
    assert set(failing) == {"generations_are_ended"} and "goes away" in failing["generations_are_ended"]


def test_an_answer_that_is_none_is_caught(routes):
    failing = routes(models="return {'model': 'kit'}").failing("routes")
    assert "gave no RouteResponse" in failing["strange_requests_are_the_clients_fault"]


def _layer(body: str) -> str:
    return f"""
        def layer(app):
            async def around(scope, receive, send):{body.replace(chr(10), chr(10) + " " * 8)}
            return around
        registry.layer(layer)"""


@pytest.mark.parametrize("told", LAYERED)
def test_a_layer_that_changes_what_is_not_its_own_is_caught(routes, told):
    failing = routes(declare=_layer(LAYERED[told])).failing("routes")
    assert told in failing["layers_pass_on_what_is_not_theirs"]


def test_a_layer_that_passes_everything_on_passes(routes):
    sound = "\n        await app(scope, receive, send)"
    assert routes(declare=_layer(sound)).report("routes").failures == []


@pytest.mark.parametrize(
    ("declare", "told"),
    [
        ("registry.add('GET', '/x/broken/a/{b}', self.models, scope='admin')", "no parameters"),
        ("registry.add('GET', '/x/broken/a', self.models, scope='public')", "among `public`"),
        ("registry.add('GET', '/x/broken/a', self.models, scope='nobody')", "scopes are"),
        ("registry.add('GET', '/x/broken/a', self.models, scope='admin', header='x-a')", "no scope"),
        (
            "registry.add('GET', '/x/broken/a', self.models, scope=('admin', 'generate')[next(COUNT) % 2])",
            "second time",
        ),
    ],
)
def test_scopes_that_cannot_be_are_caught(routes, declare, told):
    assert told in routes(declare=declare).failing("routes")["routes_are_declared"]


def test_an_operators_route_passes(routes):
    declare = "registry.add('GET', '/x/broken/operator', self.models, scope='admin')"
    assert routes(declare=declare).report("routes").failures == []


def test_a_plugin_without_samples_stays_at_l0(routes):
    report = routes("def samples(): return []\n").report("manifest", "routes")
    assert report.level == Level.L0 and "it ships no RouteSample" in str(report.not_run[0])
