"""Each check of loaders, sources, hooks and executors finds the plugin that is wrong in its way."""

from __future__ import annotations

import pytest

LOADER_MANIFEST = """
from core.api import WeightLoaderSpec

SPEC = WeightLoaderSpec(name="broken", impl="PKG.reader:Reader", api=1, summary="s", patterns={patterns!r})
"""

# A sound reader, changed at one point: the one of Hugging Face's layout under another name.
LOADER = """
from core_plugin_huggingface.reader import SafetensorsReader

class Tensor:
    def __init__(self, inner): self.inner = inner
    name = property(lambda self: self.inner.name)
    shape = property(lambda self: self.inner.shape)
    encoding = "plain"
    def raw(self): return self.inner.raw()
    def dense(self, dtype):
        value = self.inner.dense(dtype)
        {dense}
        return value

class Reader(SafetensorsReader):
    def recognises(self, path):
        found = super().recognises(path)
        {recognises}
        return found
    def inspect(self, path):
        {before}
        info = super().inspect(path).model_copy(update={"format": "broken"})
        {inspect}
        return info
    def tokenizer(self, path):
        inner = super().tokenizer(path)
        {tokenizer}
        return inner
    def tensors(self, path, progress):
        {progress}
        {open}
        found = [Tensor(one) for one in super().tensors(path, progress)]
        {tensors}
        return iter(found)
"""

PARTS = ("dense", "recognises", "before", "inspect", "tokenizer", "progress", "open", "tensors")

DEAF = """
class Deaf:
            def __getattr__(self, name, inner=inner): return getattr(inner, name)
            def decode(self, ids, **named): return 'x'
        inner = Deaf()
"""

LOADER_CASES = {
    "recognises_its_samples": {"recognises": "found = True if not any(path.glob('*')) else found"},
    "inspect_states_the_facts": {"inspect": "info = info.model_copy(update={'architecture': ''})"},
    "inspecting_needs_no_torch": {"inspect": "import torch"},
    "every_tensor_comes_once": {"tensors": "found += found[:1]"},
    "values_are_those_meant": {"dense": "value = value + 1"},
    "progress_adds_up": {"progress": "progress = (lambda inner: lambda n: inner(n - 1))(progress)"},
    "truncated_files_are_refused": {
        "before": "import json\n"
        "        cut = any(f.stat().st_size == 7 for f in path.glob('*.safetensors'))\n"
        "        if cut: raise json.JSONDecodeError('x', 'y', 0)"
    },
    "missing_files_are_refused": {"open": "next(path.iterdir())"},
    "tokenizer_loses_nothing": {"tokenizer": DEAF.strip()},
    "a_missing_tokenizer_is_told": {"inspect": "info = info.model_copy(update={'tokenizer_fault': 'none'})"},
}


@pytest.fixture
def loader(make_plugin):
    def make(patterns: tuple[str, ...] = ("config.json",), **parts: str):
        source = LOADER
        for key in PARTS:
            source = source.replace("{" + key + "}", parts.get(key, "pass"))
        sample = (
            "from core_plugin_huggingface.conformance import samples as every\n"
            "from core_testing.conformance import CheckpointSample\n\n"
            "def samples():\n    return [one for one in every() if isinstance(one, CheckpointSample)][:1]\n"
        )
        modules = {"manifest": LOADER_MANIFEST.format(patterns=patterns), "reader": source, "conformance": sample}
        return make_plugin("core.weight_loaders", modules)

    return make


@pytest.mark.parametrize("check", LOADER_CASES)
def test_loaders(loader, check):
    assert set(loader(**LOADER_CASES[check]).failing("loaders")) == {check}


def test_patterns_that_match_no_file_are_caught(loader):
    failing = loader(patterns=("*.acme",)).failing("loaders")
    assert set(failing) == {"recognises_its_samples"} and "*.acme" in failing["recognises_its_samples"]


SOURCE_MANIFEST = """
from core.api import ModelSourceSpec

SPEC = ModelSourceSpec(
    name="broken", impl="PKG.source:Source", api=1, summary="s", aliases=("acme-tiny",), default=False
)
"""

SOURCE = """
from pathlib import Path
from core.api import CheckpointError, ModelFiles, StoredModel

class Source:
    def stored(self):
        return [StoredModel(reference="acme-tiny", path={stored})]

    def resolve(self, reference, *, revision=None):
        here = str(Path(__file__).parent)
        {first}
        if reference == "acme-tiny": return ModelFiles(reference=reference, path={alias}, name="tiny")
        if reference and reference.startswith("acme:"):
            path = reference.removeprefix("acme:")
            {missing}
            return ModelFiles(reference={kept}, path=path, name="n")
        return None
"""

SOURCE_SAMPLE = """
from core_testing.conformance import SourceSample

def samples():
    yield SourceSample("a folder", make=lambda folder: f"acme:{folder}", missing="acme:/there/is/nothing")
"""

SOUND = {
    "first": "pass",
    "alias": "here",
    "kept": "reference",
    "stored": "__file__",
    "missing": "if not Path(path).exists(): raise CheckpointError('CORE-X000', 'nothing there')",
}

SOURCE_CASES = {
    "foreign_references_are_left_alone": {"first": "if reference == '': raise CheckpointError('CORE-X000', 'empty')"},
    "default_is_as_declared": {"first": "reference = 'acme-tiny' if reference is None else reference"},
    "aliases_are_answered": {"alias": "here + '/nowhere'"},
    "samples_resolve": {"kept": "'something else'"},
    "missing_models_are_errors": {"missing": "pass"},
    "stored_models_are_there": {"stored": "'/there/is/no/model'"},
}


@pytest.mark.parametrize("check", SOURCE_CASES)
def test_sources(make_plugin, check):
    source = SOURCE
    for key, value in {**SOUND, **SOURCE_CASES[check]}.items():
        source = source.replace("{" + key + "}", value)
    modules = {"manifest": SOURCE_MANIFEST, "source": source, "conformance": SOURCE_SAMPLE}
    assert set(make_plugin("core.model_sources", modules).failing("sources")) == {check}


def test_a_source_without_samples_stays_at_l0(make_plugin):
    source = SOURCE
    for key, value in SOUND.items():
        source = source.replace("{" + key + "}", value)
    report = make_plugin("core.model_sources", {"manifest": SOURCE_MANIFEST, "source": source}).report(
        "manifest", "sources"
    )
    assert report.level is not None and report.level.name == "L0"
    assert report.not_run[0].checks == ("samples_resolve", "missing_models_are_errors")


ELSEWHERE = """
import os
from core_testing.conformance import SourceSample

def samples():
    yield SourceSample(
        "in an environment", make=lambda folder: f"acme:{folder}", missing="acme:/there/is/nothing",
        environment=lambda folder: {"ACME_HERE": str(folder), "PYTHONPATH": str(folder)},
    )
"""


@pytest.mark.parametrize("missing", ["pass", "if 'ACME_HERE' not in os.environ: raise KeyError('not in a child')"])
def test_a_sample_with_an_environment_is_resolved_in_a_process_of_its_own(make_plugin, missing):
    source = "import os\n" + SOURCE
    parts = {**SOUND, "missing": f"{missing}\n            {SOUND['missing']}"}
    for key, value in parts.items():
        source = source.replace("{" + key + "}", value)
    modules = {"manifest": SOURCE_MANIFEST, "source": source, "conformance": ELSEWHERE}
    assert make_plugin("core.model_sources", modules).failing("sources") == {}


def test_what_a_source_raises_in_a_process_of_its_own_is_told(make_plugin):
    source = SOURCE
    for key, value in {**SOUND, "missing": "raise KeyError('acme')"}.items():
        source = source.replace("{" + key + "}", value)
    modules = {"manifest": SOURCE_MANIFEST, "source": source, "conformance": ELSEWHERE}
    failing = make_plugin("core.model_sources", modules).failing("sources")
    assert "KeyError" in failing["samples_resolve"] and "acme" in failing["samples_resolve"]


HOOKS = """
import time
from core.api import ConfigPatch, hookimpl

@hookimpl
def core_configure(config, facts):
    {configure}
    return []

@hookimpl
def {event}(event, details):
    {observe}
"""

HOOK_CASES = {
    "hooks_fit_the_specifications": {"event": "core_no_such_event"},
    "hooks_answer_in_kind": {"configure": "return ['a patch']"},
    "hooks_change_nothing_they_read": {"configure": "config['kv']['block_size'] = 7"},
    "hooks_are_quick": {"observe": "sum(range(300_000))"},
}


@pytest.mark.parametrize("check", HOOK_CASES)
def test_hooks(make_plugin, check):
    case = {"configure": "pass", "event": "core_engine_event", "observe": "pass", **HOOK_CASES[check]}
    source = HOOKS
    for key, value in case.items():
        source = source.replace("{" + key + "}", value)
    made = make_plugin("core.plugins", {"hooks": source}, value="PKG.hooks")
    # What is asked of a hook that does not fit is not asked further; one that answers wrongly answers nothing.
    follow = {
        "hooks_fit_the_specifications": {"hooks_answer_in_kind", "hooks_change_nothing_they_read", "hooks_are_quick"},
        "hooks_answer_in_kind": {"hooks_change_nothing_they_read", "hooks_are_quick"},
    }
    assert set(made.failing("hooks")) == {check} | follow.get(check, set())


@pytest.mark.parametrize(
    ("check", "hook", "told"),
    [
        ("hooks_answer_in_kind", "core_request(request): return 'no'", "core_request"),
        ("hooks_answer_in_kind", "core_request(request): return RequestPatch({'temperature': -5})", "temperature"),
        ("hooks_answer_in_kind", "core_waive(problem): return 'fine'", "core_waive"),
        ("hooks_answer_in_kind", "core_layer(site, layer): return layer.look_up", "no subclass of core.api.Product"),
        ("hooks_change_nothing_they_read", "core_request(request): request.prompt_token_ids.append(7)", "RequestPatch"),
        ("hooks_are_quick", "core_request(request): sum(range(300_000))", "core_request takes"),
    ],
)
def test_hooks_of_requests_and_layers(make_plugin, check, hook, told):
    source = f"from core.api import RequestPatch, hookimpl\n\n@hookimpl\ndef {hook}\n"
    report = make_plugin("core.plugins", {"hooks": source}, value="PKG.hooks").report(checks=(check,))
    assert told in report.failures[0].message


def test_a_sound_hook_module_passes_everything_of_its_kind(make_plugin):
    source = "from core.api import hookimpl\n\n@hookimpl\ndef core_validate(config):\n    return []\n"
    report = make_plugin("core.plugins", {"hooks": source}, value="PKG.hooks").report()
    from core_testing.conformance.table import checks_for

    full = make_plugin("core.plugins", {"hooks": source}, value="PKG.hooks").report(
        checks=tuple(check.name for check in checks_for("core.plugins"))
    )
    assert (report.failures, full.failures) == ([], [])
    assert full.level is not None and full.level.name == "L1"


EXECUTOR_MANIFEST = """
from core.api import ExecutorSpec

SPEC = ExecutorSpec(name="broken", impl="PKG.executor:Executor", api=1, summary="s")
"""

EXECUTOR = """
import threading
from core_plugin_executors.inproc import InprocExecutor

class Done:
    def __init__(self, value): self.value = value
    def result(self): return self.value

class Executor(InprocExecutor):
    held = None
    {body}
"""

EXECUTOR_CASES = {
    "steps_run_in_order": (
        "def launch(self, plan):\n        pending = super().launch(plan)\n"
        "        if len(plan.rows) < 2 or plan.late: return pending\n"
        "        result = pending.result(); result.tokens = (result.tokens + 1) % 384\n        return Done(result)"
    ),
    "late_parts_reach_their_step": "def late(self, number, parts):\n        super().late(number, {})",
    "calls_run_between_steps": (
        "def call(self, method, *args):\n        answer = super().call(method, *args)\n"
        "        return 'v0' if answer == 'initial' else answer"
    ),
    "close_leaves_nothing_behind": (
        "def start(self):\n        self.event = threading.Event()\n"
        "        threading.Thread(target=self.event.wait, args=(1.5,), name='left over', daemon=True).start()\n"
        "        return super().start()"
    ),
    "failed_start_leaves_nothing_behind": (
        "def start(self):\n        try: return super().start()\n"
        "        except Exception as error: raise RuntimeError('no') from error"
    ),
}


@pytest.fixture
def impatient(monkeypatch):
    """Do not wait long for what is left over."""
    monkeypatch.setattr("core_testing.conformance.areas.executors._PATIENCE", 0.3)


@pytest.mark.parametrize("check", EXECUTOR_CASES)
def test_executors(make_plugin, impatient, check):
    source = EXECUTOR.replace("{body}", EXECUTOR_CASES[check])
    made = make_plugin("core.executors", {"manifest": EXECUTOR_MANIFEST, "executor": source})
    failing = made.failing("executors")
    assert set(failing) - {"failed_start_leaves_nothing_behind"} == {check} - {"failed_start_leaves_nothing_behind"}
    assert check in failing
