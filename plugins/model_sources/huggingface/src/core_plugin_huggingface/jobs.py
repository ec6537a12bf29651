"""A few things at a time, in threads that do not keep the process alive."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence


def run_all(jobs: Sequence[Callable[[], None]], workers: int) -> None:
    """Run every job; the first error is raised at once, and what has not begun then never does.

    A pool of `concurrent.futures` would make Ctrl-C wait for every download that is under way.
    """
    waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    stopped = threading.Event()
    for job in jobs:
        waiting.put(job)

    def work() -> None:
        while not stopped.is_set():
            try:
                waiting.get_nowait()()
            except queue.Empty:
                return
            except BaseException as error:
                ended.put(error)
                return
            ended.put(None)

    for number in range(min(workers, len(jobs))):
        threading.Thread(target=work, name=f"fetch-{number}", daemon=True).start()
    try:
        for _ in jobs:
            error = ended.get()
            if error is not None:
                raise error
    finally:
        stopped.set()
