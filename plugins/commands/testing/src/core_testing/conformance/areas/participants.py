"""Participants: parts of their types, questions that take nothing, requests that all end as they would without them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from core.api.descriptors import ParticipantSpec
from core.api.errors import PluginError
from core.api.participants import FrontParticipant, FrontSetup, Participant, Parts
from core.api.requests import Caller
from core.api.wire import unpack_array
from core.config.resolved import Options
from core.engine.assembly import settings_of
from core.engine.driven import DRIVEN
from core.engine.participants.moments import counted
from core.engine.participants.stages import MOST_STATS
from core.engine.tasks.halves import OWN as TASKS
from core.plugins.catalog import Catalogue
from core.plugins.contracts import check_contract
from core.plugins.kinds import TASK
from core.plugins.known import Table
from core.plugins.plan import PlannedPlugin
from core.selection.participants import HONOURED
from core_testing.arithmetic import generate
from core_testing.conformance.outcome import Failed, NotApplicable, Unavailable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.options import every_options
from core_testing.conformance.tools.participant_bench import VOCABULARY, Bench

_REQUESTS = 16
_TURNS = 2000
"""More turns of the loop than any order of the requests needs."""

_CALLERS = (Caller(), Caller("ann"), Caller("ben", "key-0123456789abcdef"))
_ASKS = 5

Texts = Mapping[int, tuple[list[int], int]]
"""Handle -> prompt and number of tokens."""


def halves_fit_the_contract(subject: Subject) -> None:
    """Every half is a subclass of its base class, and each of its public methods is a moment."""
    spec = subject.spec(ParticipantSpec)
    for path in filter(None, (spec.impl, spec.worker_impl, spec.front_impl)):
        try:
            check_contract(subject.entry, spec, path, subject.load(path))
        except PluginError as error:
            raise Failed(error.message) from error
    if spec.front_impl is not None:
        for options in every_options(subject):
            made = subject.load(spec.front_impl)(FrontSetup(subject.entry.name, options))
            require(isinstance(made, FrontParticipant), f"the front half is a {type(made).__name__}")


def what_it_asks_core_for_is_there(subject: Subject) -> None:
    """Fields that it honours, kinds that it drives, and options that it goes by are those that core leaves it."""
    spec, entry = subject.spec(ParticipantSpec), subject.entry
    unknown = sorted(set(spec.honours) - HONOURED)
    require(not unknown, f"core leaves {', '.join(sorted(HONOURED))} to participants, not {', '.join(unknown)}")
    closed = sorted(set(spec.drives) - set(DRIVEN))
    require(not closed, f"participants drive {', '.join(DRIVEN)}, not {', '.join(closed)}")
    installed = {one.name for one in Catalogue.scan().entries(TASK.group)}
    known = {name for row in Table.read().providing(TASK.group) for name in row.names["tasks"]}
    unserved = sorted(spec.tasks - {"*", *TASKS, *installed, *known})
    require(not unserved, f"there is no task {', '.join(unserved)}")
    planned = PlannedPlugin(
        group=entry.group, name=entry.name, value=entry.value, dist=entry.dist, version=entry.version, api=spec.api
    )
    try:
        settings_of(Options(), planned, spec.settings)
    except PluginError as error:
        raise Failed(error.message) from error


def parts_are_typed(subject: Subject) -> None:
    """The descriptor's `parts` is a `Parts`, whose types can be rebuilt from a message."""
    path = subject.spec(ParticipantSpec).parts
    if path is None:
        raise NotApplicable("it sends no parts")
    parts = subject.load(path)
    require(isinstance(parts, Parts), f"{path} is a {type(parts).__name__}, not a Parts")
    for name in Parts.__dataclass_fields__:
        if (kind := getattr(parts, name)) is not None:
            try:
                msgspec.msgpack.Decoder(kind, dec_hook=unpack_array)
            except TypeError as error:
                raise Failed(f"the type of its {name} part cannot be sent to another process: {error}") from error


def nothing_goes_wrong(subject: Subject) -> None:
    """In an engine whose messages cross a process border no moment raises, and every part is of its type."""
    for bench, _ in _rounds(subject):
        texts = bench.faults.texts
        require(not texts, f"{len(texts)} faults, at first: {texts[:1]}")
        failed = [one for one in bench.engine.errors.values() if "CORE-" in one or "Error" in one]
        require(not failed, f"requests end with errors: {failed[:2]}")


def asking_takes_nothing(subject: Subject) -> None:
    """Asked whether one request may run, however often, it answers the next one as if it had not been asked."""
    for options in every_options(subject):
        for first, second in ((0, 1), (1, 0), (0, 0)):
            asked, fresh = Bench(subject, options), Bench(subject, options)
            before = dict(asked.half.stats())
            answers = [_answer(asked, first, 0) for _ in range(_ASKS)]
            require(len(set(answers)) == 1, f"asked {_ASKS} times about one request it answers {answers}")
            require(dict(asked.half.stats()) == before, "asking whether a request may run changes its figures")
            found, due = _answer(asked, second, 1), _answer(fresh, second, 1)
            require(found == due, f"asked about another before it answers {found}, else {due}: admit takes")
            asked.close()
            fresh.close()


def everybody_ends(subject: Subject) -> None:
    """With few rows and blocks every request of several callers ends, at every overlap depth."""
    for _ in _rounds(subject, blocks=18):
        pass


def outputs_are_the_models(subject: Subject) -> None:
    """Unless it constrains tokens, every output is what the model says; of a refused request, as far as it came."""
    for bench, texts in _rounds(subject):
        if bench.constrains:
            raise NotApplicable("it constrains tokens")
        done = 0
        for handle, (prompt, count) in texts.items():
            found, due = bench.engine.outputs[handle], generate(prompt, count, VOCABULARY)
            whole = handle not in bench.engine.errors
            done += whole
            require(found == (due if whole else due[: len(found)]), f"the output of request {handle} is wrong")
        if not done:
            raise Unavailable(f"it refuses every request of the kit: {next(iter(bench.engine.errors.values()))}")


def everything_is_given_back(subject: Subject) -> None:
    """After requests that gave way, were aborted or ended, the same ones run once more, and as quickly."""
    for options in every_options(subject):
        bench = Bench(subject, options, blocks=18, prefix=False)
        first, refused = _timed_round(bench)
        second, further = _timed_round(bench)
        require(further > refused or second <= first, f"a second round takes {second} turns, the first took {first}")
        bench.close()


def forgetting_changes_no_output(subject: Subject) -> None:
    """When weights change in the middle everything goes on; forgetting twice and closing twice do no harm."""
    for options in every_options(subject):
        bench = Bench(subject, options)
        texts = dict(_add(bench, random.Random(3)) for _ in range(4))
        for turn in range(_TURNS):
            bench.engine.advance()
            if turn in (3, 4):
                bench.engine.forget()
            if not bench.engine.busy:
                break
        _require_ended(bench, texts)
        require(not bench.faults.count, f"after reset: {bench.faults.last}")
        bench.close()
        bench.close()


def figures_are_integers(subject: Subject) -> None:
    """Figures are integers of 64 bits or lists of them, by name, at most 64, before, amid and after requests."""
    for options in every_options(subject):
        bench = Bench(subject, options)
        _require_figures(bench.half)
        texts = dict(_add(bench, random.Random(4)) for _ in range(3))
        bench.engine.advance()
        _require_figures(bench.half)
        _run(bench, texts)
        _require_figures(bench.half)
        bench.close()


def calls_have_names(subject: Subject) -> None:
    """Calls of both halves are functions by name, the same ones whenever they are asked for."""
    for options in every_options(subject):
        bench = Bench(subject, options)
        halves = [half for half in (bench.half, bench.worker_half) if half is not None]
        for half in halves:
            calls: Mapping[str, Callable[..., Any]] = half.calls()
            plain = all(isinstance(name, str) and name and callable(call) for name, call in calls.items())
            require(plain, f"calls gives {calls!r}, due are functions by name")
            require(list(calls) == list(half.calls()), "asked again it offers other calls")
        bench.close()


def _rounds(subject: Subject, *, blocks: int = 24) -> Iterator[tuple[Bench, Texts]]:
    """Yield a participant and what it was asked for, after requests that came over time have all ended."""
    for options in every_options(subject):
        for depth in (0, 1, 3):
            bench, rng = Bench(subject, options, depth=depth, blocks=blocks), random.Random(depth)
            _run(bench, texts := _come(bench, rng))
            yield bench, texts
            bench.close()


def _come(bench: Bench, rng: random.Random) -> dict[int, tuple[list[int], int]]:
    texts: dict[int, tuple[list[int], int]] = {}
    for _ in range(_REQUESTS):
        texts.update([_add(bench, rng)])
        bench.engine.advance()
    return texts


def _add(bench: Bench, rng: random.Random) -> tuple[int, tuple[list[int], int]]:
    prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 24))]
    count = rng.randint(1, 20)
    return bench.engine.add(prompt, count, caller=rng.choice(_CALLERS)), (prompt, count)


def _run(bench: Bench, texts: Texts) -> int:
    """Run until all requests have ended; return how many turns that took."""
    turns = 0
    while bench.engine.busy and turns < _TURNS:
        bench.engine.advance()
        turns += 1
    _require_ended(bench, texts)
    return turns


def _require_ended(bench: Bench, texts: Texts) -> None:
    late = sorted(set(texts) - set(bench.engine.finished))
    require(not late, f"after {_TURNS} turns the requests {late} have not ended: they wait forever")
    bench.engine.scheduler.check()


def _timed_round(bench: Bench) -> tuple[int, int]:
    """Run a round of requests of which some are aborted; return its turns, and how many were refused."""
    rng, before = random.Random(5), len(bench.engine.errors)
    texts = _come(bench, rng)
    aborted = sorted(texts)[::4]
    for handle in aborted:
        bench.engine.abort(handle)
    turns = _run(bench, texts)
    return turns, len(bench.engine.errors) - before


def _answer(bench: Bench, which: int, handle: int) -> bool | str:
    """Let a request arrive, unless it has, and ask whether it may run."""
    known = bench.arrived
    if (which, handle) not in known:
        rng = random.Random(6 + which)
        prompt = [rng.randrange(VOCABULARY) for _ in range(9)]
        made = bench.engine.request(handle, prompt, 5, caller=_CALLERS[1 + which])
        known[which, handle] = made
        try:
            bench.half.arrive(made)
        except ValueError as error:
            return str(error)
    try:
        return bool(bench.half.admit(known[which, handle]))
    except ValueError as error:
        return str(error)


def _require_figures(half: Participant) -> None:
    figures = half.stats()
    require(len(figures) <= MOST_STATS, f"it has {len(figures)} figures, at most {MOST_STATS} are shown")
    for name, figure in figures.items():
        try:
            require(isinstance(name, str), f"a figure is called {name!r}")
            for one in figure if isinstance(figure, list) else [figure]:
                counted(one)
        except (TypeError, OverflowError) as error:
            raise Failed(f"its figure {name!r} is {figure!r}: {error}") from error


CHECKS = checks(
    halves_fit_the_contract,
    what_it_asks_core_for_is_there,
    parts_are_typed,
    nothing_goes_wrong,
    asking_takes_nothing,
    everybody_ends,
    outputs_are_the_models,
    everything_is_given_back,
    forgetting_changes_no_output,
    figures_are_integers,
    calls_have_names,
)
