"""A bounded pool of compilers. A grammar made to be hard costs its own request and nobody else's step."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from core.api.structured import CompiledGrammar
from core.engine.compiling.line import Line, effort
from core.engine.grammars import Grammar

logger = logging.getLogger(__name__)

Compile = Callable[[str, str], CompiledGrammar]
"""Raises `ValueError` for a grammar that cannot be used."""

MAX_LOST = 4
"""Threads that may be stuck in a compiler before no further ones take their place."""

_UNKNOWN_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Compiler:
    """One driver's compiler: the kinds it knows and how it compiles."""

    name: str
    kinds: frozenset[str]
    compile: Compile


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What compiling may cost.

    Attributes:
        seconds: Time that one grammar gets in one compiler.
        workers: Grammars that are compiled at once; where there are several, one worker is kept for easy ones.
        cache_bytes: Memory for compiled grammars that nobody uses.
    """

    seconds: float = 10.0
    workers: int = 2
    cache_bytes: int = 256 * 2**20


class Job:
    """A grammar that is being compiled, or was.

    Attributes:
        began: When a worker took it.
        lost: It keeps its worker beyond its time, which has been replaced.
        wanted: Requests that wait for it.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.began: float | None = None
        self.lost = False
        self.wanted = 0
        self._compiled: CompiledGrammar | None = None
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
        compiled = self._compiled
        return len(self.grammar.value) + int(getattr(compiled, "size", _UNKNOWN_BYTES)) if compiled else 0

    def result(self) -> CompiledGrammar:
        """Return the compiled grammar of a job that is done. Raises `ValueError` with what is wrong with it."""
        if self._error is not None or self._compiled is None:
            raise self._error or ValueError("it is not compiled yet")
        return self._compiled

    def wait(self, seconds: float) -> bool:
        """Wait until the outcome is known; say whether it is."""
        return self._done.wait(seconds)

    def settle(self, compiled: CompiledGrammar | None, error: ValueError | None = None) -> None:
        """Store the outcome; the first one counts."""
        if not self.done:
            self._compiled, self._error = compiled, error
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

    def submit(self, grammar: Grammar) -> Job:
        """Return the job of a grammar; equal grammars share one. Raises `ValueError` for a kind nobody compiles."""
        kinds = frozenset[str]().union(*(compiler.kinds for compiler in self._compilers))
        if grammar.kind not in kinds:
            known = ", ".join(sorted(kinds))
            raise ValueError(f"grammars of kind '{grammar.kind}' are not supported here; supported: {known}")
        job = self._jobs.pop(grammar.key, None)
        if job is None or job.failed:
            job = Job(grammar)
            self._line.put(job, effort(grammar), self._clock())
            self._start_worker()
        job.wanted += 1
        self._jobs[grammar.key] = job
        self._evict()
        return job

    def release(self, job: Job) -> None:
        """A request that waited for a job has gone; one that nobody waits for is not begun any more."""
        job.wanted -= 1
        if not job.wanted and self._line.drop(job):
            del self._jobs[job.grammar.key]

    def check(self, job: Job) -> bool:
        """Say whether a job is done; one that takes too long is given up and fails."""
        limit = self._limits.seconds * (1 + sum(job.grammar.kind in one.kinds for one in self._compilers))
        if job.done or job.began is None or self._clock() - job.began <= limit:
            return job.done
        # A compiler in a child process is killed in time; only one in a thread, which nothing can stop, comes here.
        job.lost = True
        job.settle(None, ValueError(f"compiling it took more than {limit:g} seconds"))
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
            self._compile(job)
            if job.lost:
                return  # another worker has taken this one's place

    def _compile(self, job: Job) -> None:
        """Try the drivers in their order. What they say of the grammar is told only if none can use it."""
        said: list[str] = []
        try:
            value = self._read(job.grammar)
        except ValueError as error:
            return job.settle(None, error)
        for compiler in self._compilers:
            if job.grammar.kind not in compiler.kinds:
                continue
            try:
                job.settle(compiler.compile(job.grammar.kind, value))
                return None
            except ValueError as error:
                said.append(f"{compiler.name}: {error}" if len(self._compilers) > 1 else str(error))
            except Exception as error:
                logger.exception("structured-output backend '%s' failed to compile a grammar", compiler.name)
                said.append(f"{compiler.name}: {type(error).__name__}")
        return job.settle(None, ValueError("; ".join(said)))

    def _evict(self) -> None:
        """Forget the jobs that were asked for least recently until the rest fits."""
        total = sum(job.size for job in self._jobs.values())
        for key in list(self._jobs)[:-1]:
            if total <= self._limits.cache_bytes:
                return
            job = self._jobs[key]
            if job.done:
                total -= job.size
                del self._jobs[key]
