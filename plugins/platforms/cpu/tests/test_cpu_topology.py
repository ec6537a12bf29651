"""Threads and processors on machines that are described in files: memory nodes, SMT siblings, affinity, quotas."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from core_plugin_cpu.binding import choose, memory_nodes, show
from core_plugin_cpu.cgroups import cpu_quota
from core_plugin_cpu.processor import available_cores
from hypothesis import given, settings
from hypothesis import strategies as st


@dataclass(frozen=True)
class Machine:
    """Nodes of cores of siblings.

    Attributes:
        adjacent: Whether siblings have numbers next to each other; else first all first siblings are counted.
    """

    nodes: int
    cores: int
    siblings: int
    adjacent: bool = False

    @property
    def processors(self) -> int:
        return self.nodes * self.cores * self.siblings

    def core_of(self, cpu: int) -> int:
        return cpu // self.siblings if self.adjacent else cpu % (self.nodes * self.cores)

    def node_of(self, cpu: int) -> int:
        return self.core_of(cpu) // self.cores

    def write(self, root: Path) -> Path:
        """Describe the machine as Linux does below `root`."""
        every = range(self.processors)
        for cpu in every:
            twins = show([other for other in every if self.core_of(other) == self.core_of(cpu)])
            put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", twins)
        for node in range(self.nodes):
            cpus = show([cpu for cpu in every if self.node_of(cpu) == node])
            put(root, f"sys/devices/system/node/node{node}/cpulist", cpus)
        return root


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def limit(root: Path, quota: float) -> None:
    """Give this process so many processors' worth of time (version 2)."""
    put(root, "proc/self/cgroup", "0::/job")
    put(root, "sys/fs/cgroup/job/cpu.max", f"{int(quota * 100_000)} 100000")


machines = st.builds(Machine, st.integers(1, 4), st.integers(1, 16), st.integers(1, 2), st.booleans())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(machine=machines, threads=st.one_of(st.none(), st.integers(1, 64)), data=st.data())
def test_threads_keep_to_a_node_that_has_room_for_them(machine, threads, data):
    here = data.draw(st.sets(st.integers(0, machine.processors - 1), min_size=1))
    with TemporaryDirectory() as folder:
        root = machine.write(Path(folder))
        chosen = choose("auto", here, threads, root)
        cores = available_cores(root, chosen)
    by_node = [sum(machine.node_of(cpu) == node for cpu in here) for node in range(machine.nodes)]
    if max(by_node) >= (threads or 1):
        assert {machine.node_of(cpu) for cpu in chosen} == {by_node.index(max(by_node))}
        assert len(chosen) == max(by_node), "processors of the node are left out"
    else:
        assert chosen == here
    assert cores == len({machine.core_of(cpu) for cpu in chosen}), "siblings are one core"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(machine=machines, quota=st.floats(0.1, 80))
def test_a_quota_bounds_the_cores_and_leaves_one(machine, quota):
    with TemporaryDirectory() as folder:
        root = machine.write(Path(folder))
        limit(root, quota)
        cores = available_cores(root, range(machine.processors))
        assert cpu_quota(root) == pytest.approx(quota, abs=1e-4)
    assert cores == max(1, min(machine.nodes * machine.cores, math.ceil(int(quota * 100_000) / 100_000)))


def test_siblings_of_masked_processors_do_not_count(tmp_path):
    """A container that got one sibling of each core has all cores; one that got both siblings of some has those."""
    root = Machine(nodes=1, cores=4, siblings=2).write(tmp_path)
    assert available_cores(root, [0, 1, 2, 3]) == available_cores(root, [4, 5, 6, 7]) == 4
    assert available_cores(root, [0, 4, 1, 5]) == 2


def test_numbers_of_nodes_need_not_be_in_a_row(tmp_path):
    root = tmp_path
    put(root, "sys/devices/system/node/node8/cpulist", "4-7")
    put(root, "sys/devices/system/node/node0/cpulist", "0-3")
    put(root, "sys/devices/system/node/node10/cpulist", "")
    assert memory_nodes(root) == [{0, 1, 2, 3}, {4, 5, 6, 7}, set()]


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        # Version 2: the tightest of a group and those above it.
        ({"proc/self/cgroup": "0::/a/b", "a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 2.5),
        ({"proc/self/cgroup": "0::/a/b", "a/b/cpu.max": "50000 100000", "a/cpu.max": "250000 100000"}, 0.5),
        ({"proc/self/cgroup": "0::/a", "a/cpu.max": "20000 10000"}, 2.0),
        ({"proc/self/cgroup": "0::/a", "a/cpu.max": "max"}, None),
        # Version 1, with the controller's own hierarchy; -1: none.
        (
            {
                "proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/a/b",
                "cpu/a/b/cpu.cfs_quota_us": "-1",
                "cpu/a/b/cpu.cfs_period_us": "100000",
                "cpu/a/cpu.cfs_quota_us": "300000",
                "cpu/a/cpu.cfs_period_us": "100000",
            },
            3.0,
        ),
        # Both, as where version 2 has some of the controllers.
        (
            {
                "proc/self/cgroup": "1:cpu:/a\n0::/a",
                "cpu/a/cpu.cfs_quota_us": "150000",
                "cpu/a/cpu.cfs_period_us": "100000",
                "a/cpu.max": "max 100000",
            },
            1.5,
        ),
    ],
)
def test_the_tightest_quota_counts(tmp_path, files, wanted):
    for name, text in files.items():
        put(tmp_path, name if name.startswith("proc") else f"sys/fs/cgroup/{name}", text)
    assert cpu_quota(tmp_path) == wanted
