"""`core plugins doctor`: one broken distribution for every finding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from core_plugin_author.doctor.finding import Finding, joined

HOOK = "from core.api import hookimpl\n"


def findings(core, *words):
    status, out, _ = core("plugins", "doctor", "--json", *words)
    data = json.loads(out)
    return status, {(one["level"], one["code"]): one for one in data["findings"]}, data


def test_a_sound_plugin_gives_nothing(site, core):
    site.policy("sound")
    status, found, data = findings(core, "sound")
    assert (status, found, data["plugins"]) == (0, {}, 1)


DEEP = """
def deep():
    raise KeyError('gone')
try:
    deep()
except KeyError as error:
    raise RuntimeError('outer') from error
"""


def test_an_import_failure_has_its_innermost_cause_and_place(site, core):
    site.policy("ruin", manifest=DEEP)
    status, found, _ = findings(core, "ruin")
    one = found["error", "CORE-P103"]
    assert status == 1
    assert "KeyError: 'gone'" in one["cause"] and "ruin_manifest.py:4" in one["cause"]
    assert (one["plugin"], one["distribution"], one["version"]) == ("schedulers:fifo", "ruin", "1.0")
    assert "core plugins disable ruin" in one["remedy"]


def test_the_implementation_is_imported_too(site, core):
    site.policy("half", impl="import a_library_nobody_has")
    _, found, _ = findings(core, "half")
    assert "No module named 'a_library_nobody_has'" in found["error", "CORE-P103"]["cause"]


@pytest.mark.parametrize(
    ("methods", "told"),
    [
        ("def key(self, request): return (0,)", "it lacks victim(running)"),
        ("key = victim = 3", "its key is a int, not a method key(request)"),
        (
            "def key(self): ...\n    def victim(self, running): ...",
            "key(request) is called, but its signature is key()",
        ),
    ],
)
def test_an_object_that_lacks_what_core_calls_is_shown(site, core, methods, told):
    site.policy("broken", impl=f"class Policy:\n    {methods}\n")
    status, found, _ = findings(core, "broken")
    one = found["error", "CORE-P160"]
    assert status == 1 and told in one["cause"]
    assert (one["plugin"], one["distribution"], one["version"]) == ("schedulers:fifo", "broken", "1.0")


def test_a_missing_system_library_is_named(site, core):
    site.policy("native", impl="raise ImportError('libacme.so.7: cannot open shared object file: No such file')")
    _, found, _ = findings(core, "native")
    assert "libacme.so.7" in found["error", "CORE-P120"]["remedy"]


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        ("api=9", "CORE-P104", "API 9"),
        ("api=1, requires=('no-such-thing>=3',)", "CORE-P105", "no-such-thing>=3, which is not installed"),
    ],
)
def test_api_window_and_requirements(site, core, spec, code, text):
    site.policy("old", spec=spec)
    status, found, _ = findings(core, "old")
    assert status == 1 and text in found["error", code]["cause"] and found["error", code]["remedy"]


def test_a_module_of_another_device_is_a_note(site, core):
    site.policy("apart", spec="api=1, imports=('no_such_module',)")
    status, found, _ = findings(core, "apart")
    assert status == 0 and "no_such_module" in found["note", "CORE-P111"]["cause"]


def test_a_foreign_entry_point_is_a_warning(site, core):
    site.install("stranger", {"core.schedulers": {"x": "stranger_mod:x"}}, {"stranger_mod": "x = 3"})
    status, found, _ = findings(core, "stranger")
    assert status == 0 and "int, not a SchedulerPolicySpec" in found["warning", "CORE-P106"]["cause"]


def test_names_that_differ_are_an_error(site, core):
    site.policy("sound")
    site.install("other", {"core.schedulers": {"lifo": "sound_manifest:POLICY"}})
    status, found, _ = findings(core, "other")
    assert status == 1 and "named 'fifo', its entry point 'lifo'" in found["error", "CORE-P106"]["cause"]


def test_duplicates_name_both_and_how_to_choose(site, core):
    site.policy("one")
    site.policy("two")
    status, found, _ = findings(core, "fifo@two")
    assert status == 1
    assert "one 1.0 and two 1.0" in found["error", "CORE-P102"]["cause"]
    assert "--scheduler-policy fifo@one" in found["error", "CORE-P102"]["remedy"]


def test_heavy_manifests(site, core):
    site.policy("heavy", manifest="import numpy")
    status, found, _ = findings(core, "heavy")
    assert status == 0 and "numpy" in found["warning", "CORE-P123"]["cause"]


def test_a_manifest_with_its_options_in_it(site, core):
    site.policy("mixed", manifest="from pydantic import BaseModel")
    status, found, _ = findings(core, "mixed")
    assert status == 0 and "its manifest imports pydantic" in found["warning", "CORE-P123"]["cause"]
    site.policy("apart", name="apart", impl="from pydantic import BaseModel\n" + site.fitting)
    assert findings(core, "apart")[:2] == (0, {})


def test_slow_manifests(site, core):
    busy = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.2:\n    pass"
    site.policy("slow", manifest=busy)
    _, found, _ = findings(core, "slow")
    assert "20 ms are allowed" in found["warning", "CORE-P122"]["cause"]


def test_deprecated_uses_in_its_own_files(site, core):
    site.install(
        "aged-package",
        {"core.schedulers": {"p": "aged_pkg.manifest:POLICY"}},
        {
            "aged_pkg.manifest": "from core.api import SchedulerPolicySpec\n"
            "POLICY = SchedulerPolicySpec(name='p', impl='aged_pkg.impl:Policy', api=1, summary='')",
            "aged_pkg.impl": "import warnings\nwarnings.warn('old way', DeprecationWarning)\n" + site.fitting,
        },
    )
    _, found, _ = findings(core, "aged-package")
    assert "old way (aged_pkg/impl.py:2)" in found["note", "CORE-P124"]["cause"]


def test_a_hook_that_core_does_not_know(site, core):
    module = HOOK + "@hookimpl\ndef core_no_such_hook(): ...\n"
    site.install("hooked", {"core.plugins": {"hooked": "hooked_mod"}}, {"hooked_mod": module})
    status, found, _ = findings(core, "hooked")
    assert status == 1 and "core_no_such_hook" in found["error", "CORE-P107"]["cause"]


CHECK = """
from core.api.patches import Finding
@hookimpl
def core_doctor():
    yield Finding(level='error', message='no card', hint='Plug one in.')
"""


def test_a_plugin_may_report_by_itself(site, core):
    site.install("checker", {"core.plugins": {"checker": "checker_mod"}}, {"checker_mod": HOOK + CHECK})
    status, found, _ = findings(core, "checker")
    assert status == 1 and found["error", "CORE-P129"]["cause"] == "it says: no card"


NPU_MANIFEST = """
from core.api.descriptors import PlatformSpec
NPU = PlatformSpec(name='npu', impl='npu_mod:Npu', api=2, summary='An NPU', device_type='cpu', probe='npu_mod:probe',
                   dtypes=('float32',))
"""
NPU_MODULE = """
from core.api.platform import Platform
from core.api.verdict import ProbeResult
def probe():
    {probe}
class Npu(Platform):
    def open(self, *, threads, seed, index): ...
    def memory(self): ...
    def stream(self): ...
    def describe(self): ...
    def close(self): ...
"""


@pytest.mark.covers("PLAT-01")
@pytest.mark.parametrize(
    ("probe", "status", "level", "code", "told"),
    [
        ("return ProbeResult(available=True)", 0, None, None, None),
        (
            "return ProbeResult(available=False, reason='no card')",
            0,
            "note",
            "CORE-P129",
            "it says: not here, because: no card",
        ),
        (
            "old = ProbeResult(available=False, reason='too old')\n"
            "    return ProbeResult(available=True, devices=(ProbeResult(available=True), old))",
            0,
            "note",
            "CORE-P129",
            "it says: not here (device 1), because: too old",
        ),
        ("return 1 / 0", 1, "error", "CORE-P108", "npu_mod:probe raised ZeroDivisionError"),
    ],
    ids=["here", "absent", "one of two", "raising"],
)
def test_a_platform_says_why_its_device_is_not_here(site, core, probe, status, level, code, told):
    modules = {"npu_manifest": NPU_MANIFEST, "npu_mod": NPU_MODULE.format(probe=probe)}
    site.install("npu", {"core.platforms": {"npu": "npu_manifest:NPU"}}, modules)
    ended, found, _ = findings(core, "npu")
    assert ended == status and len(found) == (level is not None)
    assert level is None or told in found[level, code]["cause"]


def test_an_unknown_kind_is_a_note(site, core):
    site.install("ahead", {"core.telepathy": {"x": "ahead_mod:X"}}, {"ahead_mod": "X = 1"})
    status, found, _ = findings(core, "ahead")
    assert status == 0 and "core.telepathy" in found["note", "CORE-P127"]["cause"]


@pytest.mark.parametrize(
    ("manifest", "words", "text"),
    [
        ("import os; os.write(2, b'segfault here'); os._exit(11)", (), "status 11: segfault here"),
        ("import time; time.sleep(60)", ("--timeout", "1.5"), "more than 1.5 seconds"),
    ],
)
def test_a_crash_or_a_hang_stays_in_its_process(site, core, manifest, words, text):
    site.policy("wild", manifest=manifest)
    status, found, _ = findings(core, "wild", *words)
    assert status == 1 and text in found["error", "CORE-P126"]["cause"]


def test_what_a_plugin_prints_does_not_disturb(site, core):
    site.policy("loud", manifest="print('{}')", impl="print('noise')\n" + site.fitting)
    assert findings(core, "loud")[:2] == (0, {})


def editable(site, tmp_path, declared):
    project = tmp_path / "my project"
    project.mkdir()
    (project / "pyproject.toml").write_text(f'[project]\nname = "edit"\n{declared}')
    site.policy("edit")
    url = {"url": (project.as_uri()), "dir_info": {"editable": True}}
    (site.root / "edit-1.0.dist-info" / "direct_url.json").write_text(json.dumps(url))
    return project


def test_stale_editable_metadata(site, core, tmp_path):
    declared = '[project.entry-points."core.schedulers"]\nfifo = "edit_manifest:POLICY"\nlifo = "edit_manifest:LIFO"\n'
    project = editable(site, tmp_path, declared)
    _, found, _ = findings(core, "edit")
    one = found["warning", "CORE-P121"]
    assert "schedulers:lifo is edit_manifest:LIFO in the source, missing as installed" in one["cause"]
    assert str(project) in one["remedy"]


def test_fresh_editable_metadata(site, core, tmp_path):
    editable(site, tmp_path, '[project.entry-points."core.schedulers"]\nfifo = "edit_manifest:POLICY"\n')
    assert findings(core, "edit")[:2] == (0, {})


def test_a_distribution_that_is_installed_twice(site, core, tmp_path, monkeypatch):
    site.policy("twin")
    site.install("twin", {"core.schedulers": {"fifo": "twin_manifest:POLICY"}}, version="0.9", into=tmp_path / "older")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "older")])
    _, found, _ = findings(core, "twin")
    assert "1.0 in" in found["warning", "CORE-P128"]["cause"] and "0.9 in" in found["warning", "CORE-P128"]["cause"]


def test_another_package_core_before_this_one(site, core):
    (site.root / "core").mkdir()
    (site.root / "core" / "__init__.py").write_text("")
    site.policy("sound")
    site.only()
    status, out, _ = core("plugins", "doctor", "--json")
    cause = next(one["cause"] for one in json.loads(out)["findings"] if one["code"] == "CORE-P125")
    assert status == 1 and str(site.root / "core") in cause


def test_findings_as_lines_and_in_order(site, core):
    site.policy("mixed", manifest="import numpy", impl="import a_library_nobody_has")
    status, out, _ = core("plugins", "doctor", "mixed")
    lines = out.splitlines()
    assert status == 1
    assert lines[0].startswith("error: CORE-P103 schedulers:fifo (mixed 1.0): ")
    assert lines[1].startswith("warning: CORE-P123 ")
    assert lines[2] == "1 plugins: 1 error, 1 warning, 0 notes"


def test_what_plugins_of_a_distribution_share_is_one_note():
    def note(name, cause="it needs x", dist="acme"):
        return Finding("note", "CORE-P111", cause, "", f"kernels:{name}", dist, "1.0")

    found = [note("a"), note("b"), note("c", dist="other"), note("d"), note("e", cause="it needs y")]
    assert [str(one) for one in joined(found)] == [
        "note: CORE-P111 kernels:a and 2 more (acme 1.0): it needs x.",
        "note: CORE-P111 kernels:c (other 1.0): it needs x.",
        "note: CORE-P111 kernels:e (acme 1.0): it needs y.",
    ]


def test_an_unknown_name_is_refused(core):
    status, _, err = core("plugins", "doctor", "hermse")
    assert status == 1 and "Did you mean 'hermes'" in err


def test_the_repository_s_own_plugins_are_sound():
    """In a process of its own, with the shell's environment, as a user runs it; torch-free plugins for speed."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("CORE_")}
    for name in ("core-plugin-schedulers", "core-plugin-hermes"):
        command = [sys.executable, "-m", "core.cli", "plugins", "doctor", name]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=60)
        assert (done.returncode, "0 errors, 0 warnings" in done.stdout) == (0, True), done.stdout + done.stderr


NOTED = "import warnings\nwarnings.warn('old way', DeprecationWarning)\n"


class World:
    """One distribution as a wheel would install it, whose manifest and implementation are in one package."""

    def __init__(self, site, impl="", manifest=""):
        self.package = site.root / "sound_pkg"
        self.info = site.root / "sound-1.0.dist-info"
        source = (
            f"{manifest}\nfrom core.api import SchedulerPolicySpec\n"
            "POLICY = SchedulerPolicySpec(name='p', impl='sound_pkg.impl:Policy', api=1, summary='')"
        )
        site.install(
            "sound",
            {"core.schedulers": {"p": "sound_pkg.manifest:POLICY"}},
            {"sound_pkg.manifest": source, "sound_pkg.impl": impl + site.fitting},
        )


def before(core, *words):
    """The doctor's status, and how many of its findings are those of an earlier run."""
    status, _, data = findings(core, *words)
    return status, data["before"], [one["code"] for one in data["findings"]]


def test_a_sound_plugin_that_has_not_changed_is_not_examined_again(site, core, monkeypatch):
    World(site, NOTED)
    assert before(core, "sound") == (0, 0, ["CORE-P124"])
    monkeypatch.setattr("core_plugin_author.doctor.parent.subprocess.run", None)  # would fail
    assert before(core, "sound") == (0, 1, ["CORE-P124"])
    _, out, _ = core("plugins", "doctor", "sound")
    assert out.splitlines()[-1] == (
        "1 plugins: 0 errors, 0 warnings, 1 note (1 as they were found before; --fresh examines them again)"
    )


def edit_the_code(world, site):
    (world.package / "impl.py").write_text("import a_library_nobody_has")
    return 1


def upgrade_a_library(world, site):
    site.install("some-library", {}, version="2.0")
    return 0


def release_a_version(world, site):
    text = (world.info / "METADATA").read_text()
    (world.info / "METADATA").write_text(text.replace("1.0", "1.1"))
    return 0


def damage_the_file(world, site):
    (file,) = (Path(os.environ["XDG_CACHE_HOME"]) / "core" / "doctor").iterdir()
    file.write_text('{"core.schedulers:p@sound": [1')
    return 0


@pytest.mark.parametrize(
    "change", [edit_the_code, upgrade_a_library, release_a_version, damage_the_file], ids=lambda one: one.__name__
)
def test_what_changes_has_it_examined_again(site, core, change):
    world = World(site)
    assert before(core, "sound")[:2] == (0, 0)
    assert before(core, "sound")[:2] == (0, 1)
    status = change(world, site)
    assert before(core, "sound")[:2] == (status, 0)
    assert before(core, "sound")[:2] == (status, 0 if status else 1)


def test_on_demand_everything_is_examined(site, core):
    World(site)
    site.policy("other", name="lifo")
    assert before(core, "sound")[1] == 0
    assert before(core, "sound", "--fresh")[1] == 0
    assert before(core, "other", "--fresh")[1] == 0
    assert before(core, "sound")[1] == 1  # nothing of others is forgotten


@pytest.mark.parametrize("kind", ["hooks", "elsewhere", "warned"])
def test_what_may_change_unseen_is_always_examined(site, core, kind):
    if kind == "hooks":
        site.install("sound", {"core.plugins": {"p": "sound_mod"}}, {"sound_mod": HOOK})
    elif kind == "elsewhere":  # the digest of the code is of the entry point's package alone
        site.policy("sound")
    else:
        World(site, manifest="import numpy")
    assert [before(core, "sound")[1] for _ in range(2)] == [0, 0]


def test_a_finding_is_printed_while_other_plugins_are_examined(site, core, monkeypatch):
    from core_plugin_author.doctor import parent
    from core_plugin_author.doctor.command import _Told

    told, real = threading.Event(), _Told.add

    def add(self, findings):
        real(self, findings)
        if findings:
            told.set()

    def examine(host, entry, file, timeout):
        cause = "in time" if entry.dist == "first" or told.wait(10) else "too late"
        return [Finding.of(entry, "error", "CORE-P103", cause)], False

    monkeypatch.setattr(_Told, "add", add)
    monkeypatch.setattr(parent, "_examine", examine)
    site.policy("first")
    site.policy("second", name="lifo")
    site.only()
    _, out, _ = core("plugins", "doctor", "--json")
    assert [one["cause"] for one in json.loads(out)["findings"] if one["plugin"]] == ["in time", "in time"]


def test_progress_goes_to_standard_error(site, core):
    site.policy("sound")
    site.only()
    _, out, err = core("plugins", "doctor", "sound", "--json")
    json.loads(out)
    assert err == "1 of 1 plugins: schedulers:fifo\n"


def test_doctor_holds_a_kernel_to_its_reference(site, core):
    manifest = """
from core.api import KernelSpec
MIX = KernelSpec(name="mix", impl="acme:mix", op="acme_mix", reference="acme:reference", api=1, summary="",
                 devices={"cpu"}, dtypes={"float32"})
"""
    source = "def reference(x, y): ...\ndef mix(x): ...\n"
    site.install("acme", {"core.kernels": {"mix": "acme_manifest:MIX"}}, {"acme_manifest": manifest, "acme": source})
    status, out, _ = core("plugins", "doctor", "--json", "mix")
    (found,) = json.loads(out)["findings"]
    assert (status, found["code"]) == (1, "CORE-P160")
    assert "(x, y) is called, but its signature is (x)" in found["cause"]
