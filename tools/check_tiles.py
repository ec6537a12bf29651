"""Run the tests of the native code at the level `amx` on a processor that has no AMX.

    python tools/check_tiles.py [--build FOLDER] [--tests FILE ...] [arguments of pytest]

Builds the library with `CORE_CPU_EMULATED_TILES`: the kernels are those for AMX, its instructions are computed in plain
C++ (`csrc/check/emulated_tiles.h`), which is checked first. Tests that have a level as a parameter run for `amx` alone,
the others at it. Needed are AVX512-BF16, CMake, a compiler, and an environment with the CPU plugin and pytest. Exit
status: pytest's, or 2 where the level is another.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "plugins" / "platforms" / "cpu" / "tests"
OTHER_LEVELS = "not base and not avx"
"""Picks tests by their parameters: none of another level."""

LEVEL = "import core_plugin_cpu.native.library as it; print(it.isa() or it.reason())"


def build(folder: Path) -> Path:
    """Compile the library and return its path. Raises `CalledProcessError` if that or the emulation fails."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    options = ["-DCORE_CPU_EMULATED_TILES=ON", "-DCMAKE_BUILD_TYPE=Release"]
    subprocess.run(["cmake", "-S", ROOT / "csrc", "-B", folder, *generator, *options], check=True)
    subprocess.run(["cmake", "--build", folder], check=True)
    subprocess.run([folder / "cpu" / "core_tiles_check"], check=True)
    return folder / "cpu" / "libcore_cpu.so"


def level(environment: dict[str, str]) -> str:
    """Return the level that the tests would run at, or why there is none."""
    asked = subprocess.run([sys.executable, "-c", LEVEL], env=environment, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or asked.stderr.strip()


def main() -> int:
    """Build, look at the level, and run the tests at it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="keep what is built here; default: a temporary folder")
    parser.add_argument("--tests", type=Path, nargs="+", default=[TESTS], help="default: all of the CPU plugin")
    args, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        library = build((args.build or Path(temporary)).resolve())
        environment = os.environ | {"CORE_CPU_LIBRARY": str(library), "CORE_CPU_ISA": "amx"}
        if (found := level(environment)) != "amx":
            print(f"the level is not amx but: {found}")
            return 2
        command = [sys.executable, "-m", "pytest", *args.tests, "-q", "-k", OTHER_LEVELS, *rest]
        return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
