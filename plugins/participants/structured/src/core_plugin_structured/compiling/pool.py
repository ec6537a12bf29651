"""A bounded pool of compilers. A grammar made to be hard costs its own request and nobody else's step."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from core.api.grammars import Grammar
from core.api.structured import CompiledGrammar
from core_plugin_structured.compiling.effort import EASY, effort
from core_plugin_structured.compiling.line import Line
from core_plugin_structured.compiling.turn import AbandonedError, BrokenCompilerError, OutOfTimeError, Turn

logger = logging.getLogger(__name__)

Compile = Callable[[str, str, Turn], tuple[CompiledGrammar, int]]
"""Returns a compiled grammar and the bytes that it takes, as measured. Raises `ValueError` for one that cannot be used,
`OutOfTimeError` and `AbandonedError` among them."""

EASY_SECONDS = 1.0
"""Time that a grammar which looks easy gets with the worker for such; one that needs more waits among the hard ones."""

MAX_LOST = 4
"""Threads that may be stuck in a compiler before no further ones take their place."""

_SMALL = 2**20
"""Bytes of a compiled grammar that always has a place."""
_SHARE = 4
"""A compiled grammar may take one part in so many of the memory for all of them."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """One driver's compiler: the kinds it knows and how it compiles."""

    name: str
    kinds: frozenset[str]
    compile: Compile


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of compiling: time, workers and memory.

    Attributes:
        seconds: Time that one grammar gets in one compiler.
        workers: Grammars that are compiled at once; where there are several, one worker is kept for easy ones.
        cache_bytes: Memory for compiled grammars that nobody uses.
        memory_bytes: Memory for those that are in use, small ones left out.
    """

    seconds: float = 10.0
    workers: int = 2
    cache_bytes: int = 256 * 2**20
    memory_bytes: int = 2**30


class Job:
    """A grammar that is being compiled, or was.

    Attributes:
        began: When a worker took it.
        lost: It keeps its worker beyond its time, which has been replaced.
        wanted: Requests that wait for it or use it.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.began: float | None = None
        self.lost = False
        self.wanted = 0
        self._compiled: CompiledGrammar | None = None
        self._size = 0
        self._error: ValueError | None = None
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._done.is_set()

    @property
    def failed(self) -> bool:
        """Whether it cannot be used."""
        return self._error is not None

    @property
    def size(self) -> int:
        """Bytes that keeping it takes."""
        return len(self.grammar.value) + self._size if self._compiled else 0

    def result(self) -> CompiledGrammar:
        """Return the compiled grammar of a job that is done. Raises `ValueError` with what is wrong with it."""
        if self._error is not None or self._compiled is None:
            raise self._error or ValueError("it is not compiled yet")
        return self._compiled

    def wait(self, seconds: float) -> bool:
        """Wait until the outcome is known; say whether it is."""
        return self._done.wait(seconds)

    def settle(self, compiled: CompiledGrammar | None, size: int = 0, error: ValueError | None = None) -> None:
        """Store the outcome; the first one counts."""
        if not self.done:
            self._compiled, self._size, self._error = compiled, size, error
            self._done.set()


@dataclass(slots=True, eq=False)
class _Worker:
    """A thread, whether it takes easy grammars only, and its job."""

    easy: bool
    job: Job | None = None


class CompilePool:
    """Compiles grammars in threads, each tried by the drivers in their order, and keeps what was compiled last.

    Args:
        clock: Monotonic seconds.
        read: Returns the value of a grammar as the drivers are to compile it; runs in the thread that compiles.
    """

    def __init__(
        self,
        compilers: Sequence[Compiler],
        limits: PoolLimits,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[Grammar], str] = attrgetter("value"),
    ) -> None:
        self._compilers, self._limits, self._clock, self._read = compilers, limits, clock, read
        self._jobs: dict[tuple[object, ...], Job] = {}
        self._line: Line[Job] = Line()
        self._workers: list[_Worker] = []
        self._lost = 0
        self._closed = False
        self._guard = threading.Lock()  # between those who ask and a worker that finds that nobody does

    def submit(self, grammar: Grammar) -> Job:
        """Return the job of a grammar; equal grammars share one. Raises `ValueError` for a kind nobody compiles."""
        kinds = frozenset[str]().union(*(compiler.kinds for compiler in self._compilers))
        if grammar.kind not in kinds:
            known = ", ".join(sorted(kinds))
            raise ValueError(f"grammars of kind '{grammar.kind}' are not supported here; supported: {known}")
        with self._guard:
            job = self._jobs.pop(grammar.key, None)
            new = job is None or job.failed
            if job is None or new:
                job = Job(grammar)
            job.wanted += 1
            self._jobs[grammar.key] = job
        if new:
            self._line.put(job, effort(grammar), self._clock())
            self._start_worker()
        self._evict()
        return job

    def release(self, job: Job) -> None:
        """A request that waited for a job, or used it, has gone; one that nobody waits for is not compiled any more."""
        job.wanted -= 1
        if not job.wanted and (job.failed if job.done else self._line.drop(job)):
            self._forget(job)

    def check(self, job: Job) -> bool:
        """Say whether a job is done; one that takes too long is given up and fails."""
        limit = self._limits.seconds * (1 + sum(job.grammar.kind in one.kinds for one in self._compilers))
        began = job.began
        if job.done or began is None or self._clock() - began <= limit:
            return job.done
        # A child process is killed in time; only what follows in this process, which nothing can stop, comes here.
        job.lost = True
        job.settle(None, error=ValueError(f"compiling it took more than {limit:g} seconds"))
        if self._lost < MAX_LOST:
            self._lost += 1
            self._workers = [worker for worker in self._workers if worker.job is not job]
            self._start_worker()
        return True

    def close(self) -> None:
        """Stop compiling; what runs is left to its end."""
        self._closed = True
        self._line.close()

    def _start_worker(self) -> None:
        """Add a worker, unless there are enough. The last one of several is for easy grammars."""
        most, now = self._limits.workers, len(self._workers)
        if now >= most or self._closed:
            return
        reserved = any(worker.easy for worker in self._workers)
        worker = _Worker(easy=now + 1 == most > 1 and not reserved)
        self._workers.append(worker)
        # Daemons: a thread that is stuck in a compiler must not keep the process from ending.
        threading.Thread(target=self._work, args=(worker,), name="core-grammar", daemon=True).start()

    def _work(self, worker: _Worker) -> None:
        while (job := self._line.take(easy=worker.easy)) is not None:
            worker.job, job.began = job, self._clock()
            short = worker.easy and self._limits.seconds > EASY_SECONDS
            try:
                self._compile(job, EASY_SECONDS if short else self._limits.seconds, last=not short)
            except OutOfTimeError:  # it only looked easy
                self._again(job)
            except AbandonedError as error:
                self._abandon(job, error)
            if job.lost:
                return  # another worker has taken this one's place

    def _again(self, job: Job) -> None:
        """Put a job back into the line, as a hard one."""
        job.began = None
        self._line.put(job, _SHARE * EASY, self._clock())

    def _abandon(self, job: Job, error: ValueError) -> None:
        """End a job that nobody waits for, unless somebody came meanwhile."""
        with self._guard:
            if not job.wanted:
                return job.settle(None, error=error)
        return self._again(job)

    def _compile(self, job: Job, seconds: float, *, last: bool) -> None:
        """Try the drivers in their order. What they say of the grammar is told only if none can use it.

        Raises:
            OutOfTimeError: The time is over, and it is not the `last` attempt.
            AbandonedError: Nobody waits for the job.
        """
        said: list[str] = []
        try:
            value = self._read(job.grammar)
        except ValueError as error:
            return job.settle(None, error=error)
        turn = Turn(seconds, lambda: job.wanted > 0, self._room)
        for compiler in self._compilers:
            if job.grammar.kind not in compiler.kinds:
                continue
            try:
                return job.settle(*compiler.compile(job.grammar.kind, value, turn))
            except AbandonedError:
                raise
            except OutOfTimeError as error:
                if not last:
                    raise
                why = str(error)
            except ValueError as error:
                why = str(error)
            except MemoryError as error:
                log = "structured-output backend '%s' ran out of memory with a grammar: it %s"
                logger.warning(log, compiler.name, error)
                why = "compiling it takes too much memory"
            except BrokenCompilerError as error:
                logger.error("structured-output backend '%s' failed to compile a grammar: %s", compiler.name, error)
                why = "it failed"
            except Exception as error:
                logger.exception("structured-output backend '%s' failed to compile a grammar", compiler.name)
                why = type(error).__name__
            said.append(f"{compiler.name}: {why}" if len(self._compilers) > 1 else why)
        return job.settle(None, error=ValueError("; ".join(said)))

    def _room(self, size: int) -> None:
        """Refuse a compiled grammar that has no place. Raises `ValueError`."""
        most = self._limits.memory_bytes
        if size > most // _SHARE:
            text = f"once compiled it takes {size / 2**20:.0f} MiB; at most {most // _SHARE // 2**20}"
            raise ValueError(f"{text} (a part of --grammar-memory-mib)")
        with self._guard:
            used = sum(job.size for job in self._jobs.values() if job.wanted)
        if size > _SMALL and used + size > most:
            raise ValueError(f"the grammars of running requests take {used / 2**20:.0f} MiB already; try again later")

    def _forget(self, job: Job) -> None:
        with self._guard:
            if self._jobs.get(job.grammar.key) is job:
                del self._jobs[job.grammar.key]

    def _evict(self) -> None:
        """Forget the jobs that were asked for least recently until the rest fits; what is in use stays."""
        with self._guard:
            idle = [job for job in self._jobs.values() if job.done and not job.wanted]
            total = sum(job.size for job in idle)
            for job in idle:
                if total <= self._limits.cache_bytes:
                    return
                total -= job.size
                del self._jobs[job.grammar.key]
