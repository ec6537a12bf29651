"""llama.cpp, built for this machine from the source that the llama-cpp-python package brings."""

from __future__ import annotations

import platform
import re
import subprocess
import tarfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from benchmarks.compare.isa import CAPS
from benchmarks.compare.shell import SetupError, make_venv, run

VERSION = "0.3.36"
_SWITCHES = {
    "SSE42": "sse4_2",
    "AVX": "avx",
    "AVX2": "avx2",
    "BMI2": "bmi2",
    "FMA": "fma",
    "F16C": "f16c",
    "AVX_VNNI": "avx_vnni",
    "AVX512": "avx512f",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
}


def programs(folder: Path, isa: str = "") -> Path:
    """Return where the programs are built; `isa`: one of `isa.CAPS`."""
    return folder / (f"llama-build-{isa}" if isa else "llama-build") / "bin"


def versions(folder: Path, isa: str = "") -> dict[str, str]:
    """Return which source it is and how it was built."""
    return {"llama.cpp": f"as in llama-cpp-python {VERSION}", "built": _mark(folder, isa).read_text().strip()}


def make(folder: Path, model: Callable[[], Path], isa: str = "") -> None:
    """Build the server and the benchmark.

    Args:
        model: Returns a quantized model to try them with.
        isa: One of `isa.CAPS`: they use no more than that.

    Raises:
        SetupError: No source, no compiler, or a build that crashes.
    """
    mark = _mark(folder, isa)
    if mark.exists():
        return
    for note, flags in _ways(isa):
        _build(folder, isa, flags, "llama-server", "llama-batched-bench")
        if _works(programs(folder, isa), model()):
            mark.write_text(note + "\n")
            return
    raise SetupError("llama.cpp was built but does not run")


def quantizer(folder: Path) -> Path:
    """Return the program that makes GGUF files of other types, built now if it is not there yet.

    Raises:
        SetupError: No source or no compiler.
    """
    program = programs(folder) / "llama-quantize"
    if not program.exists():
        configured = (programs(folder).parent / "build.ninja").exists()
        _build(folder, "", None if configured else ["-DGGML_NATIVE=ON"], program.name)
    return program


def _mark(folder: Path, isa: str) -> Path:
    return programs(folder, isa).parent / "built.txt"


def _ways(isa: str) -> Iterator[tuple[str, list[str]]]:
    """Yield how it is built, the first that works: what is said of it, and flags."""
    if isa:
        yield f"for {isa}", _only(CAPS[isa].ggml)
        return
    yield "with native flags", ["-DGGML_NATIVE=ON"]
    # The AMX products of this version crash on some machines.
    yield "with native flags but AMX, which crashes", _without_amx()


def _source(folder: Path, tools: Path) -> Path:
    target = folder / "dl"
    source = target / f"llama_cpp_python-{VERSION}" / "vendor" / "llama.cpp"
    if not source.exists():
        where = ("--no-deps", "--no-binary", ":all:", "-d", str(target), f"llama-cpp-python=={VERSION}")
        run(str(tools / "python"), "-m", "pip", "download", "--quiet", *where)
        with tarfile.open(next(target.glob("llama_cpp_python-*.tar.gz"))) as archive:
            archive.extractall(target, filter="data")
    return source


def _build(folder: Path, isa: str, flags: list[str] | None, *targets: str) -> None:
    """Build programs; without flags in a folder that has been configured."""
    tools = make_venv(folder, "llama", "cmake", "ninja")
    build = programs(folder, isa).parent
    if flags is not None:
        off = [f"-D{name}=OFF" for name in ("LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_BUILD_TESTS", "BUILD_SHARED_LIBS")]
        ninja = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DCMAKE_BUILD_TYPE=Release"]
        run(str(tools / "cmake"), "-S", str(_source(folder, tools)), "-B", str(build), *ninja, *off, *flags)
    run(str(tools / "ninja"), "-C", str(build), *targets)


def _works(programs: Path, model: Path) -> bool:
    size = ("-c", "512", "-npp", "32", "-ntg", "4", "-npl", "4", "-t", "2")
    command = [str(programs / "llama-batched-bench"), "-m", str(model), *size]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _without_amx() -> list[str]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["-DGGML_NATIVE=ON"]
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    has = set(found[1].split()) if found else set()
    return _only([name for name, flag in _SWITCHES.items() if flag in has])


def _only(names: Collection[str]) -> list[str]:
    return ["-DGGML_NATIVE=OFF", *(f"-DGGML_{name}={'ON' if name in names else 'OFF'}" for name in _SWITCHES)]
