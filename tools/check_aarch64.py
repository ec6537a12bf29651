"""Compile the native code with clang for another processor, and run its check program where an emulator is at hand.

    python -m venv V && V/bin/pip install ziglang
    V/bin/python tools/check_aarch64.py [--emulator qemu-aarch64] [--processor aarch64] [--build FOLDER]

Every warning counts as a failure. Instructions of ARMv8.6 that the emulator lacks are computed by the check program.
`--processor x86_64` compiles the whole library with clang for this family; nothing is run then, because zig brings no
part of the compiler's runtime that tells processors apart.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "csrc"

WRAPPER = """#!/bin/sh
# zig names processors in its own way.
for word do
  shift
  case "$word" in -march=armv8.2-a*) word="-mcpu=generic+v8_2a${{word#-march=armv8.2-a}}" ;; esac
  set -- "$@" "$word"
done
exec "{python}" -m ziglang c++ -target {processor}-linux-musl "$@"
"""


def compiler(folder: Path, processor: str) -> Path:
    """Write a script that is called like any other compiler, because CMake takes no compiler of three words."""
    path = folder / "zig-c++"
    path.write_text(WRAPPER.format(python=sys.executable, processor=processor))
    path.chmod(0o755)
    return path


def build(folder: Path, processor: str) -> Path:
    """Compile everything and return the check program. Raises `CalledProcessError` if something does not compile."""
    flags = {
        "CMAKE_TOOLCHAIN_FILE": SOURCES / "toolchains" / "zig.cmake",
        "CORE_ZIG_CXX": compiler(folder, processor),
        "CORE_ZIG_PROCESSOR": processor,
        "CORE_CPU_CHECK": "ON",
        "CMAKE_CXX_FLAGS": "-Werror",
        "CMAKE_BUILD_TYPE": "Release",
    }
    words = [f"-D{name}={value}" for name, value in flags.items()]
    subprocess.run(["cmake", "-S", SOURCES, "-B", folder / "build", *_generator(), *words], check=True)
    target = "core_cpu_check" if processor == "aarch64" else "core_cpu"
    subprocess.run(["cmake", "--build", folder / "build", "--target", target], check=True)
    return folder / "build" / "cpu" / "core_cpu_check"


def _generator() -> list[str]:
    return ["-G", "Ninja"] if shutil.which("ninja") else []


def main() -> int:
    """Build, and run if that is possible."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processor", default="aarch64", choices=("aarch64", "x86_64"))
    parser.add_argument("--emulator", default=shutil.which("qemu-aarch64"), help="default: qemu-aarch64, if there")
    parser.add_argument("--build", type=Path, help="keep what is built here; default: a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.build or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        program = build(folder, args.processor)
        if args.processor != "aarch64" or not args.emulator:
            print("compiled; not run" + (", for want of an emulator" if args.processor == "aarch64" else ""))
            return 0
        return subprocess.run([args.emulator, program], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
