"""The CPU platform: probe, memory limits, threads and the stream."""

import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest
import torch
from core_plugin_cpu import platform as platform_module
from core_plugin_cpu import probe as probe_module
from core_plugin_cpu import processor
from core_plugin_cpu.cgroups import MemoryLimit, cpu_quota, memory_limit
from core_plugin_cpu.manifest import CPU
from core_plugin_cpu.platform import CPUPlatform
from core_plugin_cpu.probe import probe
from core_plugin_cpu.processor import available_cores, read_processor

from core.api.errors import EngineError

GIB = 2**30


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def platform():
    threads = torch.get_num_threads()
    made = CPUPlatform()
    yield made
    made.close()
    torch.set_num_threads(threads)


@pytest.mark.covers("PLAT-01")
def test_the_manifest_and_its_probe_are_torch_free():
    code = (
        "import sys; from core_plugin_cpu.manifest import CPU; from core_plugin_cpu.probe import probe; "
        "assert probe().available; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert CPU.dtypes[0] == "bfloat16" and CPU.device_type == "cpu"


def test_the_probe_reports_cores_and_instruction_sets():
    found = probe()
    assert found.available
    assert found.facts["cores"] == available_cores() >= 1
    assert f"{found.facts['cores']} core" in found.reason


def test_the_probe_never_raises(monkeypatch):
    def broken():
        raise PermissionError("no /proc")

    monkeypatch.setattr(probe_module, "read_processor", broken)
    found = probe()
    assert found.available and "no /proc" in found.reason


def test_cpuinfo_of_two_architectures(tmp_path):
    x86 = tree(
        tmp_path / "x", {"proc/cpuinfo": "model name\t: Fast\nflags\t\t: fpu avx2 avx512f avx512_bf16 amx_bf16\n"}
    )
    assert read_processor(x86).name == "Fast"
    assert read_processor(x86).isa == ("AVX2", "AVX-512", "AVX-512 BF16", "AMX BF16")
    arm = tree(tmp_path / "a", {"proc/cpuinfo": "processor : 0\nFeatures : fp asimd bf16 i8mm\n"})
    assert read_processor(arm).isa == ("NEON", "BF16", "I8MM")
    assert read_processor(tmp_path / "none").isa == ()


def test_smt_siblings_count_once(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "allowed", lambda: {0, 1, 2, 3, 5})
    siblings = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 5: "1,5"}
    files = {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{s}\n" for n, s in siblings.items()}
    root = tree(tmp_path, files)
    assert available_cores(root) == 4
    tree(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"})
    assert available_cores(root) == 2


def test_without_topology_the_affinity_bounds_the_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(processor, "allowed", lambda: {0, 1})
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 8)
    assert available_cores(tmp_path) == 2


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/a/memory.current": f"{3 * GIB}\n",
                "sys/fs/cgroup/a/memory.stat": f"anon 5\ninactive_file {GIB}\n",
                "sys/fs/cgroup/a/b/memory.max": f"{8 * GIB}\n",
                "sys/fs/cgroup/a/b/memory.current": f"{GIB}\n",
            },
            MemoryLimit(4 * GIB, 2 * GIB),
        ),
        (
            {
                "proc/self/cgroup": "9:cpuset:/\n4:memory:/job\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{2 * GIB}\n",
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": f"{GIB}\n",
            },
            MemoryLimit(2 * GIB, GIB),
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/not/mounted\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 * GIB}\n",
            },
            MemoryLimit(GIB, 0),
        ),
    ],
)
@pytest.mark.covers("PLAT-04")
def test_control_group_memory(tmp_path, files, wanted):
    assert memory_limit(tree(tmp_path, files)) == wanted


def test_control_group_processor_time(tmp_path):
    assert (
        cpu_quota(tree(tmp_path / "a", {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"})) is None
    )
    v1 = {
        "proc/self/cgroup": "1:cpu,cpuacct:/j\n",
        "sys/fs/cgroup/cpu/j/cpu.cfs_quota_us": "50000",
        "sys/fs/cgroup/cpu/j/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
    }
    root = tree(tmp_path / "b", {**v1, "sys/fs/cgroup/cpu,cpuacct/j/cpu.cfs_quota_us": "1"})
    assert cpu_quota(root) == 0.5


def test_memory_is_the_tighter_of_machine_and_group(platform, monkeypatch):
    machine = SimpleNamespace(total=8 * GIB, available=3 * GIB)
    monkeypatch.setattr(platform_module.psutil, "virtual_memory", lambda: machine)
    for limit, wanted in [
        (None, (8 * GIB, 3 * GIB)),
        (MemoryLimit(4 * GIB, GIB), (4 * GIB, GIB)),
        (MemoryLimit(16 * GIB, 9 * GIB), (8 * GIB, 3 * GIB)),
    ]:
        monkeypatch.setattr(platform_module, "memory_limit", lambda limit=limit: limit)
        memory = platform.memory()
        assert (memory.total, memory.free) == wanted


def test_open_sets_threads_and_seed(platform):
    assert platform.open(threads=1, seed=7) == torch.device("cpu")
    first = torch.rand(3)
    assert torch.get_num_threads() == 1 and platform.describe()["threads"] == "1"
    platform.open(threads=None, seed=7)
    assert torch.equal(torch.rand(3), first)
    assert platform.describe()["threads"] == str(available_cores())


def test_the_default_is_every_core_this_process_may_use(platform):
    platform.open(threads=None, seed=0)
    assert torch.get_num_threads() == available_cores()


def test_a_stream_runs_in_order_on_one_thread_in_inference_mode(platform):
    platform.open(threads=1, seed=0)
    stream, seen = platform.stream(), []

    def work(number):
        if number == 0:
            time.sleep(0.02)
        seen.append((number, threading.get_ident(), torch.is_inference_mode_enabled(), torch.get_num_threads()))
        return number

    pending = [stream.submit(lambda n=n: work(n)) for n in range(5)]
    assert [one.result() for one in pending] == [0, 1, 2, 3, 4]
    assert [number for number, *_ in seen] == [0, 1, 2, 3, 4]
    assert len({thread for _, thread, *_ in seen}) == 1 and seen[0][1] != threading.get_ident()
    assert all(inference and threads == 1 for *_, inference, threads in seen)


def test_a_stream_passes_failures_on_and_goes_on(platform):
    stream = platform.stream()
    failing = stream.submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failing.result()
    assert stream.submit(lambda: 5).result() == 5


def test_closing_waits_for_what_runs_and_refuses_more(platform):
    stream, done = platform.stream(), []
    stream.submit(lambda: (time.sleep(0.02), done.append(1)))
    while not stream._pool._threads:
        time.sleep(0.001)
    time.sleep(0.005)
    platform.close()
    assert done == [1]
    with pytest.raises(EngineError, match="CORE-E125"):
        stream.submit(lambda: None)
    stream.close()
