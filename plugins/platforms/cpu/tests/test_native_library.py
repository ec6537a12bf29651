"""Finding and loading the native library, and what happens without it."""

import json
import logging
import os
import subprocess
import sys

import pytest
from core_plugin_cpu.native import library
from core_plugin_cpu.processor import read_processor

PROBE = """
import json, sys
from core_plugin_cpu.native import library
from core_plugin_cpu.probe import probe
found = probe()
print(json.dumps({
    "available": library.available(), "isa": library.isa(), "reason": library.reason(),
    "feature": found.has("cpu_native"), "native": found.facts["native"], "torch": "torch" in sys.modules,
    "openmp": [line.split()[-1] for line in open("/proc/self/maps") if "libgomp" in line and "r-xp" in line],
}))
"""

AVX2 = {"avx2", "fma", "f16c", "bmi2"}
AVX512 = {*AVX2, *(f"avx512{part}" for part in ("f", "bw", "vl", "dq", "cd"))}
NEEDS = {
    "avx2": AVX2,
    "avx_vnni": {*AVX2, "avx_vnni"},
    "avx512": AVX512,
    "avx512_vnni": {*AVX512, "avx512_vnni"},
    "avx512_bf16": {*AVX512, "avx512_vnni", "avx512_bf16"},
}
"""Flags of the processor that kernels of a level take to be there; tiles may be emulated."""

needs_library = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")


def facts(code=PROBE, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@needs_library
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_library_loads_without_torch_and_binds_to_torchs_openmp():
    found = facts()
    assert found["available"] and not found["torch"] and found["feature"]
    assert found["isa"] == found["native"] != ""
    assert len(found["openmp"]) == 1 and "torch" in found["openmp"][0]
    code = PROBE.replace("import json, sys", "import json, sys, torch; torch.ones(400, 400) @ torch.ones(400, 400)")
    assert facts(code)["openmp"] == found["openmp"]


@pytest.mark.covers("ATTN-04")
def test_without_the_library_everything_says_why():
    found = facts(CORE_CPU_LIBRARY="none")
    assert not found["available"] and not found["feature"] and found["isa"] == ""
    assert found["reason"] == found["native"] == "CORE_CPU_LIBRARY=none"


def test_a_file_that_is_no_library_is_a_reason(tmp_path):
    broken = tmp_path / "libcore_cpu.so"
    broken.write_bytes(b"nothing")
    found = facts(CORE_CPU_LIBRARY=str(broken))
    assert not found["available"] and "cannot be loaded" in found["reason"]


@needs_library
def test_a_library_of_another_abi_is_refused(monkeypatch):
    monkeypatch.setattr(library, "ABI", 999)
    native = library._load(next(library._installed()))
    assert native.library is None and "needs 999" in native.reason


@needs_library
@pytest.mark.covers("ATTN-04")
def test_the_environment_caps_the_instruction_set():
    assert facts(CORE_CPU_ISA="base")["isa"] == "base"
    assert facts(CORE_CPU_ISA="nonsense")["isa"] == facts()["isa"]
    with pytest.raises(ValueError, match="nonsense"):
        library.select_isa("nonsense")


@pytest.mark.covers("ATTN-04")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_level_can_be_named_and_the_processor_has_it(isa):
    """Which is not what is below another level that it has: AVX-512 is older than AVX-VNNI."""
    assert facts(CORE_CPU_ISA=isa)["isa"] == isa
    assert NEEDS.get(isa, set()) <= read_processor().flags


def test_the_platform_says_once_what_is_missing(monkeypatch, caplog):
    import torch
    from core_plugin_cpu.platform import CPUPlatform

    monkeypatch.setattr(library, "available", lambda: False)
    monkeypatch.setattr(library, "reason", lambda: "no compiler here")
    threads = torch.get_num_threads()
    with caplog.at_level(logging.WARNING):
        platform = CPUPlatform()
        platform.open(threads=threads, seed=0)
        platform.memory()
    assert platform.graphs is None
    assert platform.describe()["native kernels"] == "none: no compiler here"
    assert len(caplog.records) == 1
    assert (
        "no compiler here" in caplog.text and "pip install --force-reinstall --no-deps core-plugin-cpu" in caplog.text
    )


def test_calling_what_is_not_there_says_why(monkeypatch):
    monkeypatch.setattr(library, "_native", lambda: library.Native(None, "", "no compiler here"))
    with pytest.raises(RuntimeError, match="no compiler here"):
        library.library()
