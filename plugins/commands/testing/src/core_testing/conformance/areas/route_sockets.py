"""Web sockets and figures of route plugins: what they say, how they end, and what a scraper reads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from core.server.figures import OwnFigures
from core_testing.conformance.areas.routes import filled, sent
from core_testing.conformance.outcome import Failed, NotApplicable, checks, require
from core_testing.conformance.samples import RouteSample, SocketSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.options import every_options
from core_testing.conformance.tools.route_bench import RouteBench
from core_testing.conformance.tools.route_sockets import ACCEPTED, Said, SocketClient

_MESSAGES: tuple[tuple[str | bytes, ...], ...] = (
    (),
    ("",),
    (b"",),
    ("{}", "[]", "null", '"text"', "5"),
    (b"\xff\x00", b"{"),
    ('{"x": null}', '{"type": 5, "prompt": [], "text": {}, "n": "many"}', '{"": {"": [{}]}}'),
    ("\u2603" * 3000,),
)
_FAULT = 1011
"""Code that a socket is closed with whose endpoint raised something else than `RequestError`."""


def sockets_say_what_samples_say(subject: Subject) -> None:
    """Messages of its samples get the messages, the refusal or the closing code that they say."""
    for sample, options in _sampled(subject):
        client = SocketClient(RouteBench(subject, options))
        said = client.talk(sample.path, sample.messages, query=sample.query, done=partial(_has, sample))
        where, told = f"'{sample.name}': socket {sample.path}", said.text[:200].decode("utf-8", "replace")
        require(said.status == sample.status, f"{where} has status {said.status}, not {sample.status}: {told}")
        require(sample.answer in said.text, f"{where} lacks {sample.answer!r}: {told}")
        code = f"{where} is closed with {said.code}, not {sample.code}: {told}"
        require(sample.code is None or said.code == sample.code, code)


def strange_messages_are_the_clients_fault(subject: Subject) -> None:
    """Useless messages, parameters and queries are answered, passed over, or refused with a `RequestError`."""
    for bench, paths in _opened(subject):
        for path, messages in [*product(paths[:1], _MESSAGES), *product(paths[1:], _MESSAGES[:2])]:
            said = SocketClient(bench).talk(path, messages, query={"x": "", "n": "many"})
            failed = said.code == _FAULT or said.status == 500
            require(not failed, f"socket {path[:60]} raises something else than RequestError for {messages!r:.100}")


def sockets_end_with_either_side(subject: Subject) -> None:
    """Once its client has left, or the server ends, its endpoint ends in time and no generation is left running."""
    samples = [(one.path, one.messages, one.query) for one in subject.samples(SocketSample)]
    for options in every_options(subject):
        bench = RouteBench(subject, options)
        told = [*samples, *((paths[0], (), {}) for paths in _paths(bench))]
        for path, messages, query in told:
            for server_ends in (False, True):
                # Anew each time: a server that has ended takes no more sockets.
                client = SocketClient(RouteBench(subject, options))
                said = client.talk(path, messages, query=query, server_ends=server_ends)
                who = "the server ends" if server_ends else "its client leaves"
                require(said.ended, f"{who}, and the endpoint of socket {path[:60]} goes on")
                require(not said.running, f"{who}, and {said.running} generations of socket {path[:60]} go on")


def figures_can_be_shown(subject: Subject) -> None:
    """Its figures are those that it declares, and a scraper can read them, before and after its samples were asked."""
    for options in every_options(subject):
        bench = RouteBench(subject, options)
        if not bench.table.figures:
            raise NotApplicable("it has no figures")
        _show(bench)
        for sample in subject.samples(RouteSample):
            bench.ask(sample.method, sample.path, sent(sample), sample.query)
        _show(bench)


def _show(bench: RouteBench) -> None:
    own = OwnFigures(bench.app.state.core.metrics.own())
    for one in bench.table.figures:
        try:
            one.written(own)
        except Exception as error:
            raise Failed(f"its figures {', '.join(one.names)} fail: {type(error).__name__}: {error}") from error


def _sampled(subject: Subject) -> Iterator[tuple[SocketSample, dict[str, object]]]:
    for options in every_options(subject):
        if not _paths(RouteBench(subject, options)):
            raise NotApplicable("it has no web socket")
        for sample in subject.need_samples(SocketSample):
            yield sample, dict(options)


def _opened(subject: Subject) -> Iterator[tuple[RouteBench, list[str]]]:
    """Yield the paths of every socket, with every value for its parameters. Raises `NotApplicable`: there is none."""
    for options in every_options(subject):
        bench = RouteBench(subject, options)
        found = _paths(bench)
        if not found:
            raise NotApplicable("it has no web socket")
        yield from ((bench, paths) for paths in found)


def _paths(bench: RouteBench) -> list[list[str]]:
    return [list(filled(route.path)) for route in bench.routes if route.socket]


def _has(sample: SocketSample, said: Said) -> bool:
    """Whether a client has all that a sample says."""
    if sample.status != ACCEPTED or sample.code is not None:
        return False  # it is over then, which is waited for anyway
    return said.status == sample.status and sample.answer in said.text


CHECKS = checks(
    sockets_say_what_samples_say,
    strange_messages_are_the_clients_fault,
    sockets_end_with_either_side,
    figures_can_be_shown,
)
