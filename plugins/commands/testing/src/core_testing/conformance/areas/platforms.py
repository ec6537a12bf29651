"""Platforms: the probe never fails, the device opens, streams keep order, and everything closes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from core.api.attention import AttentionPlan
from core.api.descriptors import PlatformSpec
from core.api.facets import GraphFacet
from core.api.layers import StepInputs
from core.api.platform import Pending, Platform
from core.api.states import StateRows
from core.api.steps import StepShape
from core.api.verdict import ProbeResult
from core_testing.conformance.device_samples import StandInRuntime
from core_testing.conformance.outcome import NotApplicable, Unavailable, checks, require, require_core_error
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of
from core_testing.conformance.tools.interpreters import facts_of

PROBE_SECONDS = 1.0
_LARGEST_DRIFT = 0.02
"""Part of all memory by which two looks at an idle device may differ."""


def probe_never_raises(subject: Subject) -> None:
    """The probe answers with a `ProbeResult`, also where /proc and /sys are closed and no process can be started."""
    facts = _probe_facts(subject)
    require("error" not in facts, f"it raised {facts.get('error')}")
    require(facts["kind"] == "ProbeResult", f"it gave a {facts['kind']}")
    require("denied" not in facts, f"without system files it raised {facts.get('denied')}")


def probe_is_quick_and_light(subject: Subject) -> None:
    """The probe takes less than a second in a fresh process and imports no torch."""
    facts = _probe_facts(subject)
    seconds = facts.get("seconds", 0.0)
    require(seconds < PROBE_SECONDS, f"it took {seconds:.2f} s, allowed {PROBE_SECONDS:g}")
    require(not facts.get("torch"), "it imports torch, which costs every start of the command line seconds")


def probe_result_is_data(subject: Subject) -> None:
    """The probe's result survives JSON and is the same when asked again."""
    first, second = (subject.load(subject.spec(PlatformSpec).probe)() for _ in range(2))
    require(ProbeResult.model_validate_json(first.model_dump_json()) == first, f"it does not survive JSON: {first!r}")
    require(first == second, f"it changes from {first!r} to {second!r}")


def opens_its_device(subject: Subject) -> None:
    """`open` returns a device of the declared type on which tensors can be made; `describe` gives texts."""
    with _opened(subject) as (platform, device):
        stand_in = _stand_in(subject)
        declared = stand_in.device if stand_in else subject.spec(PlatformSpec).device_type
        require(isinstance(device, torch.device), f"open gives a {type(device).__name__}")
        require(device.type == declared, f"open gives a {device.type} device, declared is {declared}")
        total = torch.arange(10, device=device).sum().item()
        require(total == 45, f"the sum of 0 to 9 on it is {total}")
        facts = platform.describe()
        plain = all(isinstance(text, str) for pair in facts.items() for text in pair)
        require(plain, f"describe gives {facts!r}, due are texts")


def open_seeds_the_generators(subject: Subject) -> None:
    """Equal seeds give equal random numbers on the device, other seeds others."""
    numbers = []
    for seed in (11, 11, 12):
        with _opened(subject, seed=seed) as (_, device):
            numbers.append(torch.rand(8, device=device).tolist())
    require(numbers[0] == numbers[1], "two opens with one seed give different random numbers")
    require(numbers[0] != numbers[2], "opens with two seeds give the same random numbers")


def memory_is_plausible(subject: Subject) -> None:
    """Free memory is between nothing and all of it, and the whole does not change."""
    with _opened(subject) as (platform, _):
        first, second = platform.memory(), platform.memory()
    require(first.total > 0, f"total memory is {first.total}")
    require(0 <= first.free <= first.total, f"{first.free} of {first.total} bytes are said to be free")
    require(first.total == second.total, f"total memory changes from {first.total} to {second.total}")


def memory_sees_allocations(subject: Subject) -> None:
    """On an accelerator, what tensors take is missing from free memory, within 2 % of the whole."""
    if subject.device == "cpu":
        raise NotApplicable("the host's memory is shared with every other process")
    with _opened(subject) as (platform, device):
        before = platform.memory()
        size = min(before.free // 4, 2**30)
        held = torch.ones(size, dtype=torch.uint8, device=device)
        taken = before.free - platform.memory().free
        require(abs(taken - held.numel()) <= before.total * _LARGEST_DRIFT, f"{size} bytes taken, {taken} seen")


def stream_keeps_order(subject: Subject) -> None:
    """Work of one stream runs in the order of its submission, one at a time, and returns its values."""
    running, order = threading.Lock(), []

    def work(number: int) -> int:
        require(running.acquire(blocking=False), "two pieces of work run at once on one stream")
        time.sleep(0.004 * (number % 3 == 0))
        order.append(number)
        running.release()
        return number * number

    with _opened(subject) as (platform, _):
        stream = platform.stream()
        pending = [stream.submit(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc]
        results = [one.result() for one in pending]
        stream.close()
    require(order == list(range(20)), f"work submitted as 0, 1, 2, ... ran as {order}")
    require(results == [number * number for number in range(20)], f"the results are {results}")


def submit_does_not_wait(subject: Subject) -> None:
    """`submit` returns before the work is done."""
    release = threading.Event()
    with _opened(subject) as (platform, _):
        stream = platform.stream()
        begin = time.perf_counter()
        pending = stream.submit(lambda: release.wait(0.8))
        seconds = time.perf_counter() - begin
        release.set()
        done = pending.result()
        stream.close()
    require(done and seconds < 0.4, f"submit waited for the work ({seconds:.2f} s)")


def stream_delivers_exceptions(subject: Subject) -> None:
    """`result` raises what the work raised, and the stream goes on."""
    with _opened(subject) as (platform, _):
        stream = platform.stream()
        failing = stream.submit(lambda: {1: 2}[3])
        after = stream.submit(lambda: 7)
        try:
            failing.result()
            require(False, "work that raised KeyError gave a result")
        except KeyError:
            pass
        require(after.result() == 7, "work after one that failed did not run")
        stream.close()


def closes_for_good(subject: Subject) -> None:
    """`close` may be called twice, ends open streams, and a closed stream takes no work."""
    with _opened(subject) as (platform, _):
        stream = platform.stream()
        stream.submit(lambda: None).result()
        platform.close()
        platform.close()
        stream.close()
        require_core_error(lambda: stream.submit(lambda: None).result(), what="submitting to a closed stream")


def graphs_replay_what_was_captured(subject: Subject) -> None:
    """A captured forward pass, replayed on other inputs of its size, gives what the forward pass itself gives."""
    with _opened(subject) as (platform, device):
        graphs = platform.graphs
        if graphs is None:
            raise NotApplicable("it has no graphs")
        require(isinstance(graphs, GraphFacet), f"its graphs are a {type(graphs).__name__}, no GraphFacet of core.api")
        table = torch.arange(60.0, device=device).view(20, 3)

        def forward(step: StepInputs) -> torch.Tensor:
            return table[step.token_ids] * 2 + step.positions[:, None]

        shape = StepShape(num_tokens=4, num_rows=4, max_query_len=1, max_seq_len=9)
        if not (graphs.fixed and graphs.sizes(shape)) and graphs.key(shape) is None:
            raise NotApplicable("it captures no decode step of 4 rows")
        captured = _Step(device, 0)
        graph = graphs.capture(forward, captured)
        for offset in (0, 7, 3):
            step = _Step(device, offset)
            if graphs.fixed:
                captured.become(step)
            found, due = graph.replay(captured if graphs.fixed else step), forward(step)
            require(torch.equal(found, due), f"replayed on other inputs it gives {found.tolist()}, due {due.tolist()}")


def queue_keeps_order(subject: Subject) -> None:
    """Copies from pinned memory, operations and fetches are carried out in the order in which they were enqueued."""
    with _opened(subject) as (platform, device):
        queue = platform.queue()
        if queue is None:
            raise NotApplicable("it has no queue: its work is done when a call returns")
        stream = platform.stream()

        def enqueue() -> tuple[list[Pending[list[np.ndarray]]], Pending[None]]:
            pinned, onboard = queue.pinned(4), torch.empty(4, dtype=torch.int64, device=device)
            fetched = []
            for number in range(3):
                pinned.numpy()[:] = number
                onboard.copy_(pinned, non_blocking=True)
                fence = queue.fence()
                fetched.append(queue.fetch([onboard + 1, onboard]))
                onboard.add_(10)
                fence.result()
            return fetched, queue.fence()

        fetched, fence = stream.submit(enqueue).result()
        fence.result()
        found = [[array.tolist() for array in one.result()] for one in fetched]
    due = [[[number + 1] * 4, [number] * 4] for number in range(3)]
    require(found == due, f"copies of 0, 1, 2, each raised by one, come back as {found}")


def peak_is_counted_where_memory_is_apart(subject: Subject) -> None:
    """A platform with memory of its own counts what was in use at once, from `mark_memory` on."""
    with _opened(subject) as (platform, device):
        if not platform.apart:
            raise NotApplicable("it shares the host's memory")
        platform.mark_memory()
        held = torch.ones(2**20, dtype=torch.uint8, device=device)
        found = platform.memory()
    require(held.numel() <= found.peak <= found.total, f"with 1 MiB in use the peak is {found.peak} of {found.total}")


def collectives_of_one_rank_change_nothing(subject: Subject) -> None:
    """In a group of one, sums, gathers, exchanges and broadcasts give the tensor itself."""
    with _opened(subject) as (platform, device):
        group = platform.collectives
        if group is None or group.world_size != 1:
            raise NotApplicable("it has no collectives, or takes part in a group of several")
        count = 4 * max(1, group.alignment)
        tensor = torch.arange(2.0 * count, device=device).view(count, 2)
        group.barrier()
        results = {
            "all_reduce": group.all_reduce(tensor.clone()),
            "all_gather": group.all_gather(tensor.clone(), 0),
            "all_to_all": group.all_to_all(tensor.clone(), [count]),
            "broadcast": group.broadcast(tensor.clone(), 0),
        }
    wrong = [name for name, result in results.items() if not torch.equal(result, tensor)]
    require(group.rank == 0, f"the only rank has number {group.rank}")
    require(not wrong, f"{', '.join(wrong)} in a group of one gives something else")


class _Step:
    """Four decode tokens."""

    plan: AttentionPlan = None
    plans: Sequence[AttentionPlan] = (None,)
    states: StateRows | None = None

    def __init__(self, device: torch.device, offset: int) -> None:
        self.token_ids = torch.arange(offset, offset + 4, device=device)
        self.positions = torch.arange(4, device=device) * 2 + offset

    def become(self, other: _Step) -> None:
        """Take the inputs of another step, in the memory of this one."""
        self.token_ids.copy_(other.token_ids)
        self.positions.copy_(other.positions)


@contextmanager
def _opened(subject: Subject, seed: int = 0) -> Iterator[tuple[Platform, torch.device]]:
    """Open the platform in this process, and leave torch's settings as they were."""
    if not subject.device:
        device_of(subject)  # says what is missing
    stand_in = _stand_in(subject)
    found = subject.load(subject.spec(PlatformSpec).probe)()
    if stand_in is None and not found.available:
        raise Unavailable(f"its probe says: {found.reason}")
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    platform: Platform = subject.impl()() if stand_in is None else stand_in.made()
    try:
        yield platform, platform.open(threads=1, seed=seed, index=0)
    finally:
        platform.close()
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def _stand_in(subject: Subject) -> StandInRuntime | None:
    """Return what stands in for a device that the subject is not run on itself."""
    if subject.device == subject.spec(PlatformSpec).device_type:
        return None
    return next(iter(subject.samples(StandInRuntime)), None)


def _probe_facts(subject: Subject) -> dict[str, Any]:
    facts = facts_of(subject, "manifests")
    require("error" not in facts, f"importing {subject.entry.value} failed: {facts.get('error')}")
    found: dict[str, Any] = facts["probe"]
    return found


CHECKS = (
    *checks(probe_never_raises, probe_is_quick_and_light, probe_result_is_data),
    *checks(
        opens_its_device,
        open_seeds_the_generators,
        memory_is_plausible,
        memory_sees_allocations,
        stream_keeps_order,
        submit_does_not_wait,
        stream_delivers_exceptions,
        closes_for_good,
        graphs_replay_what_was_captured,
        queue_keeps_order,
        peak_is_counted_where_memory_is_apart,
        collectives_of_one_rank_change_nothing,
        on_device=True,
    ),
)
