from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from core_plugin_executors.child import Outbox
from core_plugin_executors.inproc import InprocExecutor
from core_plugin_executors.manifest import INPROC, SUBPROCESS
from core_plugin_executors.process import SubprocessExecutor
from core_plugin_executors.signs import SILENCE_SECONDS, SignsOfLife

from core.api import AllowedTokens, BlockUpdate, CheckpointError, CoreError, Done, EngineError, StepPlan

BOTH = pytest.mark.parametrize("kind", [InprocExecutor, SubprocessExecutor])
EMPTY = np.zeros(0, np.int32)


def plan(number: int, *counts: int) -> StepPlan:
    values = np.array(counts, np.int32)
    update = (BlockUpdate(EMPTY, EMPTY, EMPTY, EMPTY),)
    return StepPlan(number, [], update, values, values, values, values > 0, values, {"store": b"\x00go"})


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sockets go to a folder of the test, which must be empty in the end."""
    root = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    yield root
    root.rmdir()


@pytest.fixture
def start(make_setup: Any) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def open_one(kind: Any, mode: str = "", **options: Any) -> Any:
        executor = kind(make_setup(mode, **options))
        opened.append(executor)
        executor.start()
        return executor

    yield open_one
    for executor in opened:
        executor.close()


def gone(pid: int) -> bool:
    """Whether no process `pid` runs (one that nobody has waited for yet counts as gone)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def fenced(number: int) -> StepPlan:
    made = plan(number, 1)
    made.late.append("fence")
    return made


def fence(*values: int) -> dict[str, AllowedTokens]:
    return {"fence": AllowedTokens(np.array([0], np.int32), np.array([values], np.int32))}


@BOTH
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_late_parts_reach_their_step_whatever_was_launched_meanwhile(kind: Any, start: Any, ahead: int) -> None:
    executor = start(kind)
    pending = []
    for number in range(3):
        pending.append(executor.launch(fenced(number)))
        pending.append(executor.launch(plan(10 + number, 4)))
        if number >= ahead:
            executor.late(number - ahead, fence(number - ahead, 10))
    for number in range(3 - ahead, 3):
        executor.late(number, fence(number, 10))
    tokens = [item.result().tokens.tolist() for item in pending]
    assert tokens == [[0, 0, 10], [8], [0, 1, 10], [8], [0, 2, 10], [8]]


@BOTH
def test_an_executor_that_is_closed_leaves_no_step_waiting_for_its_late_parts(kind: Any, start: Any) -> None:
    executor = start(kind)
    pending = [executor.launch(plan(1, 1)), executor.launch(fenced(2)), executor.launch(plan(3, 1))]
    assert pending[0].result().tokens.tolist() == [2]
    executor.close()
    with pytest.raises((EngineError, CancelledError)):
        pending[1].result()


@BOTH
def test_late_parts_of_a_step_that_failed_before_it_took_them_are_dropped(kind: Any, start: Any) -> None:
    executor = start(kind)
    broken = executor.launch(fenced(99))
    executor.late(99, fence(7))
    sound = executor.launch(fenced(1))
    executor.late(1, fence(8))
    with pytest.raises(EngineError, match="step 99 fails"):
        broken.result()
    assert sound.result().tokens.tolist() == [0, 8]
    assert executor.call("steps") == [99, 1]


@BOTH
def test_steps_come_back_in_the_order_of_their_launches(kind: Any, start: Any) -> None:
    executor = start(kind)
    pending = [executor.launch(plan(number, number, 1)) for number in range(5)]
    results = [item.result() for item in pending]
    assert [result.number for result in results] == [0, 1, 2, 3, 4]
    assert [result.tokens.tolist() for result in results] == [[2 * number, 2] for number in range(5)]
    assert results[0].parts == {"store": b"\x00go"}
    assert executor.call("steps") == [0, 1, 2, 3, 4]


@BOTH
def test_results_may_be_asked_for_late_twice_and_out_of_order(kind: Any, start: Any) -> None:
    executor = start(kind)
    first, second = executor.launch(plan(1, 1)), executor.launch(plan(2, 2))
    assert executor.call("steps") == [1, 2]
    assert [second.result().number, first.result().number, first.result().number] == [2, 1, 1]


@BOTH
def test_an_error_of_one_step_is_raised_by_that_step_alone(kind: Any, start: Any) -> None:
    executor = start(kind)
    bad, good = executor.launch(plan(99, 1)), executor.launch(plan(1, 1))
    with pytest.raises(EngineError, match="CORE-E199 step 99 fails"):
        bad.result()
    assert good.result().number == 1
    assert executor.healthy()


@BOTH
def test_progress_and_worker_facts_are_passed_on(kind: Any, make_setup: Any) -> None:
    seen: list[tuple[int, int]] = []
    executor = kind(make_setup("hello", on_progress=lambda done, total: seen.append((done, total))))
    assert not executor.healthy()
    info = executor.start()
    assert executor.healthy()
    executor.close()
    executor.close()
    assert not executor.healthy()
    assert seen == [(1, 2), (2, 2)]
    assert (info.num_blocks, info.bytes_per_block, info.facts["mode"]) == (4, 64, "hello")
    assert (info.facts["pid"] == str(os.getpid())) == (kind is InprocExecutor)


@BOTH
def test_an_error_at_start_is_raised_as_it_is(kind: Any, make_setup: Any) -> None:
    executor = kind(make_setup("bad checkpoint"))
    with pytest.raises(CheckpointError) as caught:
        executor.start()
    assert (caught.value.code, caught.value.hint) == ("CORE-M199", "Download it again.")
    assert not executor.healthy()


@BOTH
def test_an_executor_that_does_not_run_says_so(kind: Any, make_setup: Any) -> None:
    with pytest.raises(EngineError, match="CORE-E133"):
        kind(make_setup()).launch(plan(0, 1))


@BOTH
def test_close_closes_the_worker(kind: Any, start: Any, tmp_path: Path) -> None:
    executor = start(kind)
    executor.call("mark", str(tmp_path / "mark"))
    executor.close()
    assert (tmp_path / "mark").read_text() == "closed"
    with pytest.raises(EngineError, match="CORE-E133"):
        executor.launch(plan(0, 1))


def test_unforeseen_errors_get_a_code(start: Any, make_setup: Any) -> None:
    with pytest.raises(EngineError, match=r"CORE-E132 .* in its start: ZeroDivisionError: by nought"):
        SubprocessExecutor(make_setup("bug at start")).start()
    executor = start(SubprocessExecutor)
    with pytest.raises(EngineError, match=r"CORE-E132 .* in a step: KeyError: 'step 98'"):
        executor.launch(plan(98, 1)).result()
    with pytest.raises(CoreError, match="CORE-E131"):
        executor.call("unplain")
    assert executor.call("echo", 1, "two") == ["echo", 1, "two"]


def test_a_child_that_dies_at_start_is_reported_with_its_status(make_setup: Any) -> None:
    with pytest.raises(EngineError, match=r"CORE-E130 .* exit status 3"):
        SubprocessExecutor(make_setup("exit at start")).start()


def test_a_child_that_does_not_get_ready_in_time_is_killed(make_setup: Any) -> None:
    executor = SubprocessExecutor(make_setup("slow start", start_timeout=0.5, close_timeout=0.2))
    with pytest.raises(EngineError, match=r"CORE-E134 .* 0.5 seconds"):
        executor.start()
    assert executor.pid is None


@pytest.mark.parametrize(("method", "args", "how"), [("die", (), "SIGKILL"), ("exit", (7,), "exit status 7")])
def test_later_launches_fail_with_the_way_the_child_died(start: Any, method: str, args: Any, how: str) -> None:
    executor = start(SubprocessExecutor)
    assert executor.launch(plan(1, 1)).result().number == 1
    with pytest.raises(EngineError, match=f"CORE-E130 .*{how}"):
        executor.call(method, *args)
    assert not executor.healthy()
    with pytest.raises(EngineError, match=f"CORE-E130 .*{how}"):
        executor.launch(plan(2, 2))


def test_a_kill_from_outside_fails_the_step_that_waits(start: Any) -> None:
    executor = start(SubprocessExecutor, "sleepy")
    first, second = executor.launch(plan(1, 1)), executor.launch(plan(2, 1))
    os.kill(executor.pid, signal.SIGKILL)
    for pending in (first, second):
        with pytest.raises(EngineError, match="CORE-E130"):
            pending.result()


@pytest.mark.covers("ENG-06")
def test_a_child_that_is_stopped_is_not_healthy_until_it_goes_on(start: Any) -> None:
    executor = start(SubprocessExecutor, "sleepy")
    executor.launch(plan(1, 1))  # it computes for a minute, which is no sign of trouble
    end = time.monotonic() + SILENCE_SECONDS + 1
    while time.monotonic() < end:
        assert executor.healthy()
        time.sleep(0.05)
    os.kill(executor.pid, signal.SIGSTOP)
    assert wait_until(lambda: not executor.healthy())
    os.kill(executor.pid, signal.SIGCONT)
    assert wait_until(executor.healthy)


def test_signs_of_life_are_counted_in_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("core_plugin_executors.signs.time", SimpleNamespace(monotonic=lambda: now))
    signs = SignsOfLife()
    os.write(signs.writing, b"." * 9)
    found = []
    for now in (1.0, 2.0, 3.0, 4.0, 3600.0):  # noqa: B007  the clock reads it
        found.append(signs.recent())
    assert found == [True, True, True, False, False]
    os.write(signs.writing, b".")
    now = 7200.0  # who was stopped itself for an hour calls nobody silent
    assert signs.recent()
    now = 10800.0
    assert signs.recent()
    signs.close()
    signs.close()
    assert not signs.recent()


def test_folders_that_a_killed_process_left_are_cleared_at_the_next_start(
    start: Any, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folders))
    left = "import os; from core_plugin_executors.host import PrivateFolder as F; F(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", left])
    (before,) = folders.iterdir()
    start(SubprocessExecutor)
    (now,) = folders.iterdir()
    assert now != before


def test_close_kills_a_child_that_hangs(start: Any) -> None:
    executor = start(SubprocessExecutor, "sleepy", close_timeout=0.2)
    pending, pid = executor.launch(plan(1, 1)), executor.pid
    executor.close()
    assert gone(pid)
    with pytest.raises(EngineError, match="CORE-E133"):
        pending.result()


PARENT = """
import sys
from types import SimpleNamespace
from core.api import load_opener
from core_plugin_executors.process import SubprocessExecutor
if __name__ == "__main__":
    opener = load_opener(sys.argv[1])
    made = SimpleNamespace(options={}, opener=opener, start_timeout=60.0, on_progress=lambda done, total: None)
    executor = SubprocessExecutor(made)
    executor.start()
    print(executor.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_death_of_the_parent_ends_the_child(
    make_setup: Any, folders: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("TMPDIR", str(folders))
    command = [sys.executable, "-c", PARENT, make_setup().opener.dumps()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.send_signal(number)
    assert wait_until(lambda: gone(child))
    assert wait_until(lambda: not list(folders.iterdir()))


def test_the_socket_folder_is_private(start: Any, folders: Path) -> None:
    start(SubprocessExecutor)
    (folder,) = folders.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_socket_path_that_is_too_long_is_explained(make_setup: Any, monkeypatch: Any, folders: Path) -> None:
    deep = folders / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(EngineError, match=r"CORE-E134 .*TMPDIR"):
        SubprocessExecutor(make_setup()).start()
    deep.rmdir()


def test_importing_both_is_free_of_torch() -> None:
    modules = {spec.impl.partition(":")[0] for spec in (INPROC, SUBPROCESS)}
    code = f"import sys, {', '.join(sorted(modules))}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_inproc_is_preferred() -> None:
    assert (INPROC.band, INPROC.priority) > (SUBPROCESS.band, SUBPROCESS.priority)


def test_answers_of_steps_that_go_on_by_themselves_keep_their_order() -> None:
    """A device's step is answered when it is done; until then further messages are taken on."""
    sent: list[bytes] = []
    done = [Future[bytes](), Future[bytes]()]
    outbox = Outbox(SimpleNamespace(send=sent.append))  # type: ignore[arg-type]
    outbox.add(Done(b"call"))
    assert sent == [b"call"]
    for answer in (done[0], done[1], Done(b"another call")):
        outbox.add(answer)
    assert sent == [b"call"]
    done[1].set_result(b"second")
    done[0].set_result(b"first")
    outbox.close()
    assert sent == [b"call", b"first", b"second", b"another call"]
