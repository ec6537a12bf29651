"""Where compute threads run, and how they wait."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import torch
from core_plugin_cpu import binding, openmp
from core_plugin_cpu import platform as platform_module
from core_plugin_cpu.binding import choose, memory_nodes, parse, show
from core_plugin_cpu.manifest import CPU
from core_plugin_cpu.platform import CPUPlatform

from core.api.errors import ConfigError


@pytest.fixture
def nodes(tmp_path):
    """`nodes("0-3", "4-7", ...)` describes a machine with these memory nodes."""

    def make(*lists):
        for number, text in enumerate(lists):
            folder = tmp_path / f"sys/devices/system/node/node{number}"
            folder.mkdir(parents=True)
            (folder / "cpulist").write_text(f"{text}\n")
        return tmp_path

    return make


@pytest.fixture
def platform():
    """A platform; the thread that opens it may run where it could before."""
    threads, here = torch.get_num_threads(), os.sched_getaffinity(0)
    made = CPUPlatform()
    yield made
    made.close()
    torch.set_num_threads(threads)
    os.sched_setaffinity(0, here)


@pytest.mark.parametrize(("text", "cpus"), [("0", {0}), ("0-3,8", {0, 1, 2, 3, 8}), ("5,1-2", {1, 2, 5}), ("", set())])
def test_lists_are_read(text, cpus):
    assert parse(text) == cpus
    assert parse(show(cpus)) == cpus


def test_lists_are_written_short():
    assert show({3, 0, 1, 2, 8, 10, 11}) == "0-3,8,10-11"


def test_nodes_are_read_in_the_order_of_their_numbers(nodes):
    root = nodes(*(str(number) for number in range(11)))
    assert memory_nodes(root) == [{number} for number in range(11)]


@pytest.mark.parametrize(
    ("lists", "here", "threads", "chosen"),
    [
        (("0-3",), range(4), None, range(4)),  # one node: nothing to choose
        (("0-3", "4-7"), range(8), None, range(4)),
        (("0-3", "4-7"), range(2, 8), None, range(4, 8)),  # the node of which more is ours
        (("0-3", "4-7", ""), range(8), 4, range(4)),  # a node with memory alone
        (("0-3", "4-7"), range(8), 6, range(8)),  # more threads than a node has processors
        ((), range(8), None, range(8)),  # the system does not say
    ],
)
def test_auto_takes_the_node_with_most_processors(nodes, lists, here, threads, chosen):
    assert choose("auto", here, threads, nodes(*lists)) == set(chosen)


def test_none_and_a_list_do_as_they_say(nodes):
    root = nodes("0-3", "4-7")
    assert choose("none", range(8), None, root) == set(range(8))
    assert choose("2-3,6", range(8), None, root) == {2, 3, 6}


@pytest.mark.parametrize("where", ["0-9", "64"])
def test_processors_that_are_not_ours_are_refused(nodes, where):
    with pytest.raises(ConfigError, match=r"CORE-C115 .*threads_bind.*Allowed here: 0-7") as caught:
        choose(where, range(8), None, nodes("0-7"))
    assert "\n" not in str(caught.value)


def test_a_bound_stream_stays_there_and_the_caller_is_freed_at_the_end(platform):
    here = os.sched_getaffinity(0)
    if len(here) < 2:
        pytest.skip("one processor")
    one = min(here)
    platform.bind(str(one))
    platform.open(threads=None, seed=0)
    assert os.sched_getaffinity(0) == {one}
    assert platform.describe()["threads"] == f"1 on processors {one}"
    seen = []

    def look():
        # A compute thread is started by the stream's thread, and may run where that may.
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        return os.sched_getaffinity(0)

    binding.restrict(here)  # whoever opens streams need not be bound
    assert platform.stream().submit(look).result() == {one}
    assert seen == [{one}]
    platform.close()
    assert os.sched_getaffinity(0) == here


def test_without_nodes_nothing_is_bound(platform, monkeypatch):
    monkeypatch.setattr(platform_module, "choose", lambda where, here, threads: here)
    monkeypatch.setattr(platform_module, "restrict", lambda cpus: pytest.fail("bound"))
    platform.open(threads=1, seed=0)
    platform.stream().submit(int).result()
    assert platform.describe()["threads"] == "1"


def test_the_environment_is_found_without_torch_and_bounds_the_spinning():
    assert CPU.environment == "core_plugin_cpu.openmp:environment"
    assert 0 < int(openmp.environment(None)["GOMP_SPINCOUNT"]) < 300_000  # libgomp's own
    code = (
        "import sys; from core_plugin_cpu.openmp import environment; environment(2); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_operators_side_by_side_have_one_thread():
    code = (
        "import torch; from core_plugin_cpu.platform import CPUPlatform;"
        "CPUPlatform().open(threads=2, seed=0); print(torch.get_num_interop_threads(), torch.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "2"]
