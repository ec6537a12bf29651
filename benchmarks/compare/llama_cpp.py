"""llama.cpp, built for this machine from the source that the llama-cpp-python package brings."""

from __future__ import annotations

import platform
import re
import subprocess
import tarfile
from pathlib import Path

from benchmarks.compare.models import prepare
from benchmarks.compare.shell import SetupError, make_venv, run

VERSION = "0.3.36"
_SWITCHES = {
    "SSE42": "sse4_2",
    "AVX": "avx",
    "AVX2": "avx2",
    "BMI2": "bmi2",
    "FMA": "fma",
    "F16C": "f16c",
    "AVX512": "avx512f",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
}


def programs(folder: Path) -> Path:
    """Return where the programs are built."""
    return folder / "llama-build" / "bin"


def versions(folder: Path) -> dict[str, str]:
    """Return which source it is and how it was built."""
    return {"llama.cpp": f"as in llama-cpp-python {VERSION}", "built": _mark(folder).read_text().strip()}


def make(folder: Path) -> None:
    """Build the server, the benchmark, and what rounds files.

    Raises:
        SetupError: No source, no compiler, or a build that crashes.
    """
    if _mark(folder).exists():
        return
    tools = make_venv(folder, "llama", "cmake", "ninja")
    source = _source(folder, tools)
    for note, flags in (
        ("with native flags", ["-DGGML_NATIVE=ON"]),
        ("with native flags but AMX, which crashes", _without_amx()),
    ):
        _build(folder, tools, source, flags)
        if _works(folder):
            _mark(folder).write_text(note + "\n")
            return
    raise SetupError("llama.cpp was built but does not run")


def _mark(folder: Path) -> Path:
    return folder / "llama-build" / "built.txt"


def _source(folder: Path, tools: Path) -> Path:
    target = folder / "dl"
    source = target / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
    if not source.exists():
        where = ("--no-deps", "--no-binary", ":all:", "-d", str(target), f"llama-cpp-python=={VERSION}")
        run(str(tools / "python"), "-m", "pip", "download", "--quiet", *where)
        with tarfile.open(next(target.glob("llama_cpp_python-*.tar.gz"))) as archive:
            archive.extractall(target, filter="data")
    return source


def _build(folder: Path, tools: Path, source: Path, flags: list[str]) -> None:
    build = programs(folder).parent
    off = [f"-D{name}=OFF" for name in ("LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_BUILD_TESTS", "BUILD_SHARED_LIBS")]
    where = ["-S", str(source), "-B", str(build), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
    run(str(tools / "cmake"), *where, "-DCMAKE_BUILD_TYPE=Release", *off, *flags)
    run(str(tools / "ninja"), "-C", str(build), "llama-server", "llama-batched-bench", "llama-quantize")


def _works(folder: Path) -> bool:
    """Try a quantized model: the AMX products of this version crash on some machines."""
    model = prepare(folder / "models", "gguf-q8_0")
    size = ("-c", "512", "-npp", "32", "-ntg", "4", "-npl", "4", "-t", "2")
    command = [str(programs(folder) / "llama-batched-bench"), "-m", str(model), *size]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _without_amx() -> list[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["-DGGML_NATIVE=ON"]
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has = set(found[1].split()) if found else set()
    return [
        "-DGGML_NATIVE=OFF",
        *(f"-DGGML_{name}={'ON' if flag in has else 'OFF'}" for name, flag in _SWITCHES.items()),
    ]
