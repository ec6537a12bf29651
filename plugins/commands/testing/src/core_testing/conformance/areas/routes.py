"""Routes: where they may be, answers for whoever asks whatever, and no generation that nobody reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.api.errors import RequestError
from core.server.plugin_routes.route import PluginRoute
from core_testing.conformance.outcome import Failed, NotApplicable, checks, require
from core_testing.conformance.samples import RouteSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.options import every_options
from core_testing.conformance.tools.route_bench import STALL, RouteBench, SentForm, declared
from core_testing.conformance.tools.route_layers import ProbedLayer

_BAD_ANSWER = b"CORE-P108"
_PARAMETER = re.compile(r"\{([^{}/]+)\}")
_VALUES = ("kit", "0", "-1", "%2e%2e", "\u2603", "x" * 3000)
_BODIES: tuple[Any, ...] = (
    None,
    {},
    [],
    "text",
    {"x": None},
    {"prompt": 5, "text": [], "messages": {}, "n": "many"},
    {"": {"": [{}] * 20}},
    SentForm({"file": b"\xff\x00", "prompt": "5", "text": b"", "messages": "{", "n": "many"}),
    SentForm({"x": "", "file": "no file", "\u2603": b"x"}),
)


_ERRORS = (
    RequestError("no key", code="missing_api_key", status=401),
    RequestError("wrong", param="a.b[0]"),
    RequestError("no such route", status=404),
    RequestError("full", code="queue_full", status=503),
    RequestError("broken", status=500),
)


def routes_are_declared(subject: Subject) -> None:
    """It declares routes or figures, where it may and with methods that exist; the same ones and files each time."""
    for options in every_options(subject):
        tables = [declared(subject, subject.impl()(dict(options))) for _ in range(2)]
        found, figures = [table.routes for table in tables], [[one.names for one in table.figures] for table in tables]
        require(found[0] or figures[0], "it declares no route")
        require(figures[0] == figures[1], f"it declares the figures {figures[0]}, the second time {figures[1]}")
        names = [[(route.method, route.path, route.scope) for route in routes] for routes in found]
        require(names[0] == names[1], f"it declares {names[0]}, the second time {names[1]}")
        files = [{route.path: route.endpoint for route in routes if route.file} for routes in found]
        for path, file in files[0].items():
            require(file == files[1][path], f"the asset {path} is another one the second time")


def errors_have_the_declared_form(subject: Subject) -> None:
    """Errors in its own form are JSON with the message and have an error's status; the form never fails."""
    for options in every_options(subject):
        table = declared(subject, subject.impl()(dict(options)))
        for dialect in {dialect for _, dialect in table.dialects.values()}:
            for error in _ERRORS:
                try:
                    told = json.dumps(dict(dialect.body(error)), allow_nan=False, ensure_ascii=False)
                    status, last = dialect.status(error), b"" if dialect.failed is None else dialect.failed(error)
                except Exception as wrong:
                    raise Failed(f"its error form fails for {error!r}: {type(wrong).__name__}: {wrong}") from wrong
                require(error.message in told, f"its error form leaves out the message: {told[:200]}")
                require(400 <= status < 600, f"its status of {error!r} is {status}, which is no error's")
                require(isinstance(last, bytes), f"it ends a stream that broke off with a {type(last).__name__}")


def no_route_hides_another(subject: Subject) -> None:
    """Every declared route can be reached: none before it takes its path for a parameter's value."""
    for options in every_options(subject):
        routes = declared(subject, subject.impl()(dict(options))).routes
        for place, route in enumerate(routes):
            path = _PARAMETER.sub("kit", route.path)
            for earlier in routes[:place]:
                hides = earlier.method == route.method and _pattern(earlier).fullmatch(path)
                require(not hides, f"{_title(route)} is never reached: {_title(earlier)} was declared before it")


def samples_are_answered(subject: Subject) -> None:
    """Requests of its samples get the status and the content that they say."""
    if all(not _routes(subject, options) for options in every_options(subject)):
        raise NotApplicable("it answers no request")
    for sample in subject.need_samples(RouteSample):
        for options in every_options(subject):
            bench = RouteBench(subject, options)
            answer = bench.ask(sample.method, sample.path, sent(sample), sample.query)
            where = f"'{sample.name}': {sample.method} {sample.path}"
            told = answer.body[:200].decode("utf-8", "replace")
            require(answer.status == sample.status, f"{where} has status {answer.status}, not {sample.status}: {told}")
            require(sample.answer in answer.body, f"{where} lacks {sample.answer!r}: {told}")


def strange_requests_are_the_clients_fault(subject: Subject) -> None:
    """Useless bodies, parameters and queries are answered, or refused with a `RequestError`: never with status 500."""
    for options in every_options(subject):
        bench = RouteBench(subject, options)
        for method, path, body in _requests(bench):
            for query in ({}, {"x": "", "n": "many"}):
                answer = bench.ask(method, path, body, query)
                where = f"{method} {path[:60]} with body {body!r} has status {answer.status}"
                require(_BAD_ANSWER not in answer.body, f"{where}: its endpoint gave no RouteResponse")
                require(answer.status != 500, f"{where}: its endpoint raised something else than RequestError")


def generations_are_ended(subject: Subject) -> None:
    """Once a client has its answer, or has gone away in the middle of a stream, no generation is left running."""
    samples = [(sample.method, sample.path, sent(sample)) for sample in subject.samples(RouteSample)]
    for options in every_options(subject):
        bench = RouteBench(subject, options)
        for method, path, body in [*samples, *_requests(bench)]:
            answer = bench.ask(method, path, body)
            require(not answer.running, f"after the answer to {method} {path[:60]} a generation goes on")
        for method, path, body in samples:
            left = RouteBench(subject, options, stall=STALL).leave(method, path, body)
            require(not left, f"the client of {method} {path} goes away, and {left} generations go on")


def layers_pass_on_what_is_not_theirs(subject: Subject) -> None:
    """A layer lets through requests, answers, streams, clients that leave, and errors before the first byte."""
    for options in every_options(subject):
        layers = RouteBench(subject, options).table.layers
        if not layers:
            raise NotApplicable("it has no layer")
        for layer in layers:
            ProbedLayer(layer).probe()


def _requests(bench: RouteBench) -> Iterator[tuple[str, str, Any]]:
    """Yield requests to every route: every value for its parameters, and every body where one is taken."""
    for route in bench.routes:
        if route.socket:
            continue
        bodies = (None,) if route.method in ("GET", "HEAD", "DELETE") else _BODIES
        for path in filled(route.path):
            for body in bodies:
                yield route.method, path, body


def filled(path: str) -> Iterator[str]:
    """Yield a path with every value for its parameters."""
    for value in _VALUES if _PARAMETER.search(path) else ("",):
        yield _PARAMETER.sub(lambda _, value=value: value, path)  # type: ignore[misc]


def _routes(subject: Subject, options: Mapping[str, Any]) -> list[PluginRoute]:
    table = declared(subject, subject.impl()(dict(options)))
    return [route for route in table.routes if not route.socket]


def sent(sample: RouteSample) -> object:
    """Return the body of a sample's request."""
    return sample.body if sample.form is None else SentForm(sample.form)


def _pattern(route: PluginRoute) -> re.Pattern[str]:
    """Return what a route's path matches, as the server does: a parameter is one part, or with `:path` all the rest."""
    parts = re.split(r"(\{[^{}/]+\})", route.path)
    return re.compile("".join(_part(part) for part in parts))


def _part(part: str) -> str:
    if not part.startswith("{"):
        return re.escape(part)
    return ".*" if part.endswith(":path}") else "[^/]+"


def _title(route: PluginRoute) -> str:
    return f"{route.method} {route.path}"


CHECKS = checks(
    routes_are_declared,
    errors_have_the_declared_form,
    no_route_hides_another,
    samples_are_answered,
    strange_requests_are_the_clients_fault,
    generations_are_ended,
    layers_pass_on_what_is_not_theirs,
)
