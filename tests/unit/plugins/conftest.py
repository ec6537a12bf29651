"""Real, temporary distributions on `sys.path`, and a small world with one plugin of every kind."""

from __future__ import annotations

import importlib
import sys
import textwrap
from pathlib import Path

import pytest

from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry

WORLD_MANIFEST = """
from core.api import *

GPU = PlatformSpec(name="gpu", impl="world.impl:Nothing", api=2, summary="", band=4, device_type="gpu",
                   probe="world.impl:probe_gpu", dtypes=("float16",))
HOST = PlatformSpec(name="host", impl="world.impl:Nothing", api=2, summary="", device_type="host",
                    probe="world.impl:probe_host", dtypes=("float32", "bfloat16"), block_size=32,
                    preferences={"core.attention_backends:quick": 3})
PLAIN = AttentionSpec(name="plain", impl="world.impl:Nothing", api=2, summary="", band=1, devices={"host"},
                      dtypes={"float32", "bfloat16", "float16"}, kv_dtypes={"float32", "bfloat16", "float16"})
QUICK = AttentionSpec(name="quick", impl="world.impl:Attention", api=2, summary="", devices={"host"},
                      dtypes={"float32", "bfloat16"}, kv_dtypes={"float32", "bfloat16"}, head_dims={64},
                      block_multiple=16, refine="world.impl:refine")
NONE = QuantSpec(name="none", impl="world.impl:Nothing", api=2, summary="", methods={"none"})
LLAMA = ModelSpec(name="llama", impl="world.impl:Nothing", api=2, summary="", architectures=("LlamaForCausalLM",),
                  shape="world.impl:shape")
TXT = WeightLoaderSpec(name="txt", impl="world.impl:Reader", api=1, summary="", patterns=("*.txt",))
FILES = ModelSourceSpec(name="files", impl="world.impl:Files", api=1, summary="", priority=60)
DEMO = ModelSourceSpec(name="demo", impl="world.impl:Demo", api=1, summary="", aliases=("demo",), default=True,
                       priority=10)
INPROC = ExecutorSpec(name="inproc", impl="world.impl:Executor", api=1, summary="", options="world.impl:Options")
FCFS = SchedulerPolicySpec(name="fcfs", impl="world.impl:Nothing", api=1, summary="")
HERMES = ToolParserSpec(name="hermes", impl="world.impl:Nothing", api=1, summary="")
STORE = KVConnectorSpec(name="store", impl="world.impl:Nothing", worker_impl="world.impl:Attention", api=2, summary="")
FAR = KVConnectorSpec(name="far", impl="world.impl:Nothing", worker_impl="world.impl:Nothing", api=2, summary="",
                      devices={"gpu"})
DISK = WeightTransferSpec(name="disk", impl="world.impl:Nothing", api=1, summary="")
"""

WORLD_IMPL = """
import pathlib

from pydantic import BaseModel

from core.api import *


class Nothing:
    def __init__(self, *given, **named): ...
    def __getattr__(self, name): ...


class Attention(Nothing): ...
class Executor(Nothing): ...


class Options(BaseModel):
    threads: int = 2


def probe_gpu():
    return ProbeResult(available=False, reason="no driver")


def probe_host():
    return ProbeResult(available=True, reason="2 cores", capability=(1,), facts={"cores": 2})


def no_task(facts): ...


def refine(request, probe):
    return Verdict.of(None if probe.capability >= (1,) else "needs capability 1")


def shape(config):
    return ModelShape(**config["shape"])


class Files:
    def resolve(self, reference, *, revision=None):
        path = pathlib.Path(reference)
        return ModelFiles(reference=reference, path=str(path), name=path.stem) if path.exists() else None


SAMPLING = {"temperature": 0.2, "top_k": 3}


class Demo:
    def resolve(self, reference, *, revision=None):
        path = pathlib.Path(__file__).with_name("demo.txt")
        if reference not in (None, "demo"):
            return None
        return ModelFiles(reference=reference or "demo", path=str(path), name="demo", generation_config=SAMPLING)


class Reader:
    def tokenizer(self, path): ...
    def tensors(self, path, progress): ...

    def recognises(self, path):
        return path.read_text().startswith("model")

    def inspect(self, path):
        architecture, method, positions, dtype = path.read_text().split()[1:]
        shape = dict(vocab_size=10, max_positions=int(positions), num_layers=1, hidden_size=64, num_heads=1,
                     num_kv_heads=1, head_dim=64, dtype=dtype)
        return CheckpointInfo(path=str(path), format="txt", architecture=architecture, config={"shape": shape},
                              quantization=method, generation_config={"top_k": 5})
"""

WORLD_ENTRIES = {
    "core.platforms": {"gpu": "GPU", "host": "HOST"},
    "core.attention_backends": {"plain": "PLAIN", "quick": "QUICK"},
    "core.quantization": {"none": "NONE"},
    "core.models": {"llama": "LLAMA"},
    "core.weight_loaders": {"txt": "TXT"},
    "core.model_sources": {"files": "FILES", "demo": "DEMO"},
    "core.executors": {"inproc": "INPROC"},
    "core.schedulers": {"fcfs": "FCFS"},
    "core.tool_parsers": {"hermes": "HERMES"},
    "core.kv_connectors": {"store": "STORE", "far": "FAR"},
    "core.weight_transfer": {"disk": "DISK"},
}


class Site:
    """A directory on `sys.path` in which distributions appear as an installer would write them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.dists: list[str] = []

    def install(
        self,
        dist: str,
        entry_points: dict[str, dict[str, str]],
        modules: dict[str, str] | None = None,
        version: str = "1.0",
    ) -> None:
        """Install `dist`; `modules` maps dotted names to their source."""
        info = self.root / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        sections = [
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in entry_points.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(sections))
        for name, source in (modules or {}).items():
            path = self.root.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
        self.dists.append(dist)
        importlib.invalidate_caches()

    def install_world(self) -> None:
        """Install one plugin of every kind, and a demo model."""
        points = {
            group: {name: f"world.manifest:{value}" for name, value in names.items()}
            for group, names in WORLD_ENTRIES.items()
        }
        self.install("core-plugin-world", points, {"world.manifest": WORLD_MANIFEST, "world.impl": WORLD_IMPL})
        self.model("world/demo")

    def model(self, name: str, text: str = "model LlamaForCausalLM none 128 bfloat16") -> str:
        """Write a model file and return its path."""
        path = self.root / f"{name}.txt"
        path.write_text(text)
        return str(path)

    def catalogue(self, *disabled: str) -> Catalogue:
        """Return what is installed here, without the rest of the environment."""
        everything = Catalogue.scan()
        entries = [entry for group in everything.groups() for entry in everything.entries(group)]
        return Catalogue([entry for entry in entries if entry.dist in self.dists], disabled)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
    sys.modules.pop("world", None)  # a namespace package: it has no file
    importlib.invalidate_caches()


@pytest.fixture
def entry():
    """Make a catalogue entry with defaults."""

    def make(name="a", dist="acme", version="1.0", group="core.schedulers", value="acme.manifest:A"):
        return Entry(group, name, dist, version, value)

    return make
