"""Temporary distributions on `sys.path`, written as an installer would."""

from __future__ import annotations

import importlib
import json
import os
import sys
import textwrap
import zipfile
from contextlib import chdir
from pathlib import Path

import pytest

from core.cli import plugin_commands
from core.cli.main import main
from core.plugins.catalog import Catalogue

WORLD = """
from core.api import *

__core_drivers__ = [
    PlatformSpec(name="host", impl="world:Host", api=2, summary="", device_type="host", probe="world:probe",
                 dtypes=("float32",)),
    AttentionSpec(name="plain", impl="world:Nothing", api=2, summary="", devices={"host"}, dtypes={"float32"},
                  kv_dtypes={"float32"}),
    QuantSpec(name="none", impl="world:Nothing", api=2, summary="", methods={"none"}),
    ModelSpec(name="llama", impl="world:Nothing", api=2, summary="", architectures=("LlamaForCausalLM",),
              shape="world:shape"),
    WeightLoaderSpec(name="txt", impl="world:Reader", api=1, summary="", patterns=("*.txt",)),
    ModelSourceSpec(name="demo", impl="world:Demo", api=1, summary="", default=True),
    ExecutorSpec(name="inproc", impl="world:Nothing", api=1, summary="", options="world:Options"),
    SchedulerPolicySpec(name="fcfs", impl="world:Nothing", api=1, summary=""),
]


class Nothing:
    def __init__(self, *given, **named): ...
    def __getattr__(self, name): ...


class Host(Platform):
    def open(self, *, threads, seed, index): ...
    def memory(self): ...
    def stream(self): ...
    def describe(self): ...
    def close(self): ...


from pydantic import BaseModel, Field


class Options(BaseModel):
    threads: int = Field(default=2, description="Threads of it.")


def probe():
    return ProbeResult(available=True)


def shape(config):
    return ModelShape(vocab_size=10, max_positions=64, num_layers=1, hidden_size=8, num_heads=1, num_kv_heads=1,
                      head_dim=8, dtype="float32")


class Demo:
    def resolve(self, reference, *, revision=None):
        return ModelFiles(reference="demo", path=__file__.replace("world.py", "demo.txt"), name="demo")


class Reader:
    def tokenizer(self, path): ...
    def tensors(self, path, progress): ...

    def recognises(self, path):
        return True

    def inspect(self, path):
        return CheckpointInfo(path=str(path), format="txt", architecture="LlamaForCausalLM", config={})


@hookimpl
def core_configure(config, facts):
    if config["scheduler"]["max_num_seqs"] == 256:
        yield ConfigPatch(path="scheduler.max_num_seqs", value=8, reason="it is a small world")
"""


def unpacked(folder, root):
    """Build a project's wheel and unpack it, as an installer does with a plain one."""
    from hatchling.build import build_wheel

    with chdir(folder):
        wheel = Path(folder) / "dist" / build_wheel(str(Path(folder) / "dist"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(root)


class Site:
    """A directory on `sys.path`. `only` limits what commands see to what was installed here."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = root
        self.dists: list[str] = []
        self._monkeypatch = monkeypatch

    def install(self, dist, entry_points, modules=None, version="1.0", direct_url=None, into=None):
        """Install `dist`; `entry_points` is group -> name -> value, `modules` dotted name -> source."""
        root = Path(into or self.root)
        info = root / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        lines = [
            line
            for group, points in entry_points.items()
            for line in (f"[{group}]", *(f"{n} = {v}" for n, v in points.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        if direct_url:
            (info / "direct_url.json").write_text(json.dumps(direct_url))
        for name, source in (modules or {}).items():
            path = root.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
        self.dists.append(dist)
        importlib.invalidate_caches()

    def build(self, folder):
        """Install a project from its wheel."""
        unpacked(folder, self.root)
        self.dists.append(Path(folder).name)
        importlib.invalidate_caches()

    fitting = "class Policy:\n    def key(self, request): ...\n    def victim(self, running): ...\n"

    def policy(self, dist, name="fifo", manifest="", spec="", impl=""):
        """Install a scheduling policy whose manifest and implementation contain what is given."""
        package = dist.replace("-", "_")
        source = (
            "from core.api import SchedulerPolicySpec\n"
            f"{textwrap.dedent(manifest)}\n"
            f"POLICY = SchedulerPolicySpec(name={name!r}, impl='{package}_impl:Policy', summary='', "
            f"{spec or 'api=1'})\n"
        )
        self.install(
            dist,
            {"core.schedulers": {name: f"{package}_manifest:POLICY"}},
            {f"{package}_manifest": source, f"{package}_impl": impl or self.fitting},
        )

    def world(self):
        """Write a plugin file with everything that a start needs, and return its path."""
        self.root.parent.joinpath("demo.txt").write_text("model")
        path = self.root.parent / "world.py"
        path.write_text(WORLD)
        return path

    def only(self):
        """Let every command see nothing but what was installed here; which commands there are does not change."""
        scan, commands = Catalogue.scan, plugin_commands.installed()

        def limited(cls, disabled=()):
            everything = scan()
            entries = [entry for group in everything.groups() for entry in everything.entries(group)]
            return Catalogue([entry for entry in entries if entry.dist in self.dists], disabled)

        self._monkeypatch.setattr(Catalogue, "scan", classmethod(limited))
        self._monkeypatch.setattr(plugin_commands, "installed", lambda: commands)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path_factory):
    """No `CORE_*` variables, width or earlier findings from outside; a command's log handler is removed afterwards."""
    import logging

    from core.logs import CoreHandler

    for name in [name for name in os.environ if name.startswith("CORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    root = logging.getLogger()
    level = root.level
    yield
    root.handlers = [handler for handler in root.handlers if not isinstance(handler, CoreHandler)]
    root.setLevel(level)
    logging.getLogger("core").setLevel(logging.NOTSET)


@pytest.fixture
def site(tmp_path, monkeypatch):
    root = tmp_path / "site"
    root.mkdir()
    monkeypatch.syspath_prepend(str(root))
    before = set(sys.modules)
    yield Site(root, monkeypatch)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture(scope="session")
def install_wheel():
    """`install_wheel(folder, site)`: build a project's wheel and unpack it there."""
    return unpacked


@pytest.fixture
def core(capsys):
    """Run `core WORD...` in this process; return status, standard output and standard error."""

    def run(*words):
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return run
