"""Each check of packaging, manifest and spawn finds the plugin that is broken in its way, and only that check does."""

from __future__ import annotations

import pytest

GENERAL = ("packaging", "manifest", "spawn")


def test_a_sound_plugin_passes(make_parser):
    report = make_parser().report(*GENERAL)
    assert [one.check for one in report.outcomes if one.status == "failed"] == []
    assert report.level is not None and report.level.name == "L0"


@pytest.mark.covers("PRAC-01")
@pytest.mark.parametrize(
    ("check", "extra", "says"),
    [
        ("manifest_imports_nothing_heavy", "try:\n    import numpy\nexcept ImportError:\n    pass", "numpy"),
        ("manifest_has_no_side_effects", "open('/dev/null', 'a').close()", "opens /dev/null for writing"),
        ("manifest_has_no_side_effects", "import socket\nsocket.socket().close()", "socket"),
        (
            "manifest_imports_quickly",
            "import time\nend = time.thread_time() + 0.1\nwhile time.thread_time() < end: pass",
            "ms, allowed",
        ),
    ],
)
def test_manifests_that_do_things(make_parser, check, extra, says):
    failing = make_parser(extra).failing("packaging", "manifest")
    assert set(failing) == {check}
    assert says in failing[check]


@pytest.mark.parametrize(
    ("check", "fields", "says"),
    [
        ("requirements_are_met", {"requires": ("no-such-distribution-zz>=3",)}, "no-such-distribution-zz"),
        ("requirements_are_met", {"requires": ("pydantic>=9999",)}, "is installed"),
        ("descriptor_round_trips_through_json", {"markers": (b"\xff\xfe".decode("latin-1"), "\ud800")}, ""),
    ],
)
def test_descriptors(make_parser, check, fields, says):
    failing = make_parser(fields=fields).failing(*GENERAL)
    assert check in failing and says in failing[check]
    assert set(failing) - {check} <= {"loads_in_a_spawned_process"}  # it cannot be loaded from a plan either


def test_an_api_out_of_the_window_is_caught(make_parser):
    failing = make_parser(fields={"api": 9}).failing(*GENERAL)
    assert set(failing) == {"api_is_in_the_window", "loads_in_a_spawned_process"}
    assert "API 9 is stated; this core accepts 1" in failing["api_is_in_the_window"]


def test_an_entry_point_of_another_name_is_caught(make_parser):
    failing = make_parser(fields={"name": "other"}).failing(*GENERAL)
    assert set(failing) == {"entry_point_is_named_like_its_descriptor", "loads_in_a_spawned_process"}


def test_missing_metadata_is_caught(make_parser):
    failing = make_parser(metadata="Metadata-Version: 2.4\nName: {dist}\nVersion: 1.0\n").failing(
        "packaging", "manifest"
    )
    assert failing == {"distribution_has_metadata": next(iter(failing.values()))}
    assert "lacks Summary and License" in failing["distribution_has_metadata"]


def test_files_inside_core_are_caught(make_parser):
    failing = make_parser(files=("core/extra.py",)).failing("packaging", "manifest")
    assert set(failing) == {"distribution_ships_nothing_of_core"}


def test_a_core_package_beside_the_plugin_is_caught(make_parser):
    made = make_parser()
    (made.site / "core").mkdir()
    (made.site / "core" / "__init__.py").touch()
    failing = made.report(checks=("distribution_ships_nothing_of_core",)).failures
    assert "lies beside" in failing[0].message


def test_a_package_name_of_the_standard_library_or_of_another_is_caught(make_parser):
    first = make_parser()
    second = make_parser(package=first.package, name="second", fields={"name": "second"})
    assert f"also that of {first.dist}" in second.failing("packaging")["import_name_is_its_own"]
    named = make_parser(package="colorsys").report(checks=("import_name_is_its_own",)).failures
    assert "standard library" in named[0].message


@pytest.mark.parametrize(
    "source",
    [
        "import core.worker.rows",
        "from core.engine import rows",
        "import importlib\nimportlib.import_module('core.selection.resolver')",
    ],
)
def test_imports_of_cores_inside_are_caught(make_parser, source):
    failing = make_parser(modules={"more": source}).failing("packaging", "manifest")
    assert set(failing) == {"imports_only_the_public_interface"}
    assert "more.py:" in failing["imports_only_the_public_interface"]


@pytest.mark.parametrize("source", ["from core import LLM", "import core", "from core import LLM, SamplingParams"])
def test_only_commands_may_import_what_programs_do(make_parser, make_plugin, source):
    check = "imports_only_the_public_interface"
    assert check in make_parser(modules={"more": source}).failing("packaging")
    manifest = (
        "from core.api import CommandSpec\nSPEC = CommandSpec(name='broken', impl='PKG.more:X', api=1, summary='s')"
    )
    assert make_plugin("core.commands", {"manifest": manifest, "more": source}).failing("packaging") == {}
    inside = make_plugin("core.commands", {"manifest": manifest, "more": "from core.frontend.llm import LLM"})
    assert check in inside.failing("packaging")


def test_executors_open_the_worker_without_importing_it(make_plugin):
    manifest = (
        "from core.api import ExecutorSpec\nSPEC = ExecutorSpec(name='broken', impl='PKG.more:X', api=1, summary='s')"
    )
    made = make_plugin("core.executors", {"manifest": manifest, "more": "import core.worker.rows\nX = 1"})
    assert set(made.failing("packaging")) == {"imports_only_the_public_interface"}
    made = make_plugin("core.executors", {"manifest": manifest, "more": "from core.api import load_opener\nX = 1"})
    assert made.failing("packaging") == {}


def test_an_implementation_that_does_not_load_is_caught(make_parser):
    failing = make_parser(parser="import no_such_module_zz").failing(*GENERAL)
    assert set(failing) == {"loads_in_a_spawned_process"}
    assert "no_such_module_zz" in failing["loads_in_a_spawned_process"]


def test_an_implementation_that_ends_the_process_is_caught(make_parser):
    failing = make_parser(parser="import os\nos._exit(3)").failing("spawn")
    assert "status 3" in failing["loads_in_a_spawned_process"]


def test_an_implementation_that_is_another_each_time_is_caught(make_parser, parser_source):
    another = "Sound = Parser\ndel Parser\n\ndef __getattr__(name):\n    return type(name, (Sound,), {})\n"
    assert set(make_parser(parser=f"{parser_source}\n{another}").failing(*GENERAL)) == {"loads_twice_in_one_process"}


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("import core.selection.resolver\ncore.selection.resolver.resolve = print", "core.selection.resolver.resolve"),
        ("from core.engine.scheduler import Scheduler\nScheduler.schedule = None", "scheduler.Scheduler.schedule"),
        ("import core.api\ncore.api.acme = 1", "core.api.acme"),
    ],
)
def test_patching_core_is_caught(make_parser, patch, says):
    failing = make_parser(parser=f"{patch}\nParser = print").failing(*GENERAL)
    assert set(failing) - {"imports_only_the_public_interface"} == {"changes_nobody_elses_code"}
    assert says in failing["changes_nobody_elses_code"]


def test_patching_torch_is_caught(make_parser):
    pytest.importorskip("torch")
    parser = "import torch\n\ndef mine(*args): ...\n\ntorch.matmul = mine\ntorch.acme_helper = mine\nParser = mine\n"
    failing = make_parser(parser=parser).failing(*GENERAL)
    assert set(failing) == {"changes_nobody_elses_code", "runs_without_torch_where_core_does"}
    assert "torch.acme_helper, torch.matmul" in failing["changes_nobody_elses_code"]


@pytest.mark.parametrize("source", ["import torch", "try:\n    import torch.nn\nexcept ImportError: pass"])
def test_an_implementation_for_a_process_without_torch_that_asks_for_it_is_caught(make_parser, parser_source, source):
    made = make_parser(parser=f"{source}\n{parser_source}")
    (failure,) = made.report(checks=("runs_without_torch_where_core_does", "manifest_imports_nothing_heavy")).failures
    assert "importing it asks for torch" in failure.message


@pytest.mark.parametrize(
    ("check", "options"),
    [
        ("options_explain_every_field", "size: int = 3"),
        ("options_survive_json", "size: float = Field(float('nan'), description='d')"),
    ],
)
def test_options(make_parser, check, options):
    source = f"from pydantic import BaseModel, Field\n\nclass Options(BaseModel):\n    {options}\n"
    made = make_parser(modules={"options": source}, fields={"options": "PKG.options:Options"})
    assert set(made.failing(*GENERAL)) == {check}
