"""`--plugin-file`, `--plugins`: what may take part in a start."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from core.api.errors import PluginError
from core.config.resolved import Options
from core.plugins.active import enter
from core.plugins.catalog import Catalogue
from core.plugins.plan import PluginPlan
from core.selection.resolver import resolve

POLICY = """
from core.api import SchedulerPolicySpec
__core_drivers__ = [SchedulerPolicySpec(name="mine", impl="my_plugin:Mine", api=1, summary="")]
class Mine: ...
"""

ENTER = """
import sys
from core.plugins.active import enter
from core.plugins.plan import PluginPlan
try:
    print(enter(PluginPlan.model_validate_json(sys.stdin.read())).impl("core.platforms").__module__)
except Exception as error:
    print(error)
"""


def options(**select):
    return Options.model_validate({"select": select})


@pytest.fixture
def plan(site):
    return resolve(options(plugins=["none"], plugin_file=[str(site.world())])).config.plan


def test_a_file_is_a_distribution_with_all_it_offers(plan, site):
    assert {plugin.dist for plugin in plan.drivers} == {"file:world"} and len(plan.drivers) == 8
    assert [(hook.name, hook.value) for hook in plan.hooks] == [("world", "world")]
    (file,) = plan.files
    assert file.path == str(site.root.parent / "world.py") and len(file.sha256) == 64


def test_its_hooks_and_options_count(site, core):
    status, out, _ = core(
        "plugins", "why", "--plugins=none", f"--plugin-file={site.world()}", "--json", "--opt", "inproc.threads=5"
    )
    data = json.loads(out)
    assert status == 0 and data["plan"]["drivers"][-2]["options"] == {"threads": 5}
    assert "it is a small world" in data["patches"][0] and "file:world" in data["patches"][0]


def replay(plan):
    done = subprocess.run(
        [sys.executable, "-P", "-c", ENTER], input=plan.model_dump_json(), capture_output=True, text=True
    )
    return done.stdout.strip() + done.stderr


def test_a_child_process_loads_the_same_bytes(plan):
    assert replay(plan) == "world"


def test_a_child_process_refuses_other_bytes(plan, site):
    with open(site.root.parent / "world.py", "a") as file:
        file.write("\n# changed\n")
    assert replay(plan).startswith("CORE-P302 plugin file ")
    with pytest.raises(PluginError, match="CORE-P302"):
        enter(plan)


def test_a_file_that_is_gone_is_named(plan, site):
    (site.root.parent / "world.py").unlink()
    assert "No such file" in replay(plan)


def test_the_same_file_again_is_not_executed_twice(site):
    path = str(site.world())
    first = resolve(options(plugins=["none"], plugin_file=[path]))
    assert first.config.plan == resolve(options(plugins=["none"], plugin_file=[path, path])).config.plan
    assert sys.modules["world"] is enter(first.config.plan).hooks._plugins["file:world:world"][1]


def test_an_edited_file_is_executed_anew_by_the_next_start(site, tmp_path):
    path = site.world()
    before = resolve(options(plugins=["none"], plugin_file=[str(path)])).config.plan
    path.write_text(path.read_text() + "\nEDITED = True\n")
    after = resolve(options(plugins=["none"], plugin_file=[str(path)])).config.plan
    assert sys.modules["world"].EDITED and after.digest != before.digest
    assert PluginPlan.model_validate_json(after.model_dump_json()) == after


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.py", None, "CORE-P303.*cannot be read"),
        ("my-plugin.py", POLICY, "CORE-P303.*not that of a Python module"),
        ("my_plugin.txt", POLICY, "CORE-P303.*not that of a Python module"),
        ("json.py", POLICY, r"CORE-P303.*a module 'json' exists already"),
        ("my_plugin.py", "x = 1", "CORE-P303.*offers no plugin"),
        ("my_plugin.py", "__core_drivers__ = [3]", "CORE-P303.*holds a int, not a descriptor"),
        ("my_plugin.py", "__core_drivers__ = 3", "CORE-P303.*is a int, not a list"),
        ("my_plugin.py", "import no_such_library", "CORE-P103.*No module named 'no_such_library'"),
        ("my_plugin.py", "raise SystemExit(3)", "CORE-P103.*SystemExit: 3"),
    ],
)
def test_files_that_cannot_be_plugins(site, tmp_path, name, text, message):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(PluginError) as caught:
        resolve(options(plugin_file=[str(path)]))
    assert re.search(message, str(caught.value))
    assert str(path) in str(caught.value)
    if caught.value.code == "CORE-P103":
        assert "my_plugin" not in sys.modules  # what did not import is not left half done


def test_two_files_of_one_name(site, tmp_path):
    (tmp_path / "other").mkdir()
    for folder in (tmp_path, tmp_path / "other"):
        (folder / "my_plugin.py").write_text(POLICY)
    paths = [str(tmp_path / "my_plugin.py"), str(tmp_path / "other" / "my_plugin.py")]
    with pytest.raises(PluginError, match="another plugin file is called 'my_plugin'"):
        resolve(options(plugin_file=paths))


def test_an_explicit_choice_beside_a_file_is_allowed_by_none(site):
    site.policy("acme")
    plan = resolve(options(plugins=["none"], plugin_file=[str(site.world())], scheduler_policy="fifo")).config.plan
    assert plan.one("core.schedulers").dist == "acme"


@pytest.mark.parametrize("names", [["fifo"], ["schedulers:fifo"], ["acme"], ["ACME"]])
def test_the_allow_list_names_plugins_or_distributions(site, names):
    site.policy("acme", spec="api=1, band=4")
    site.policy("other", name="lifo", spec="api=1, band=4")
    resolution = resolve(options(plugins=names, plugin_file=[str(site.world())]))
    assert resolution.config.plan.one("core.schedulers").dist == "acme"
    rows = {row.name: row for report in resolution.reports if report.group == "core.schedulers" for row in report.rows}
    assert rows["lifo"].reasons == ("--plugins leaves it out",)


def test_hook_modules_that_are_left_out_are_not_imported(site):
    site.install("acme-hooks", {"core.plugins": {"watch": "watch_mod"}}, {"watch_mod": "raise OSError"})
    resolution = resolve(options(plugins=["none"], plugin_file=[str(site.world())]))
    assert "watch_mod" not in sys.modules
    assert [hook.name for hook in resolution.config.plan.hooks] == ["world"]


def test_disabling_outweighs_everything(site):
    site.policy("acme")
    with pytest.raises(PluginError, match="disabled by 'acme'"):
        select = options(
            plugins=["none"], plugin_file=[str(site.world())], scheduler_policy="fifo", disable_plugin=["acme"]
        )
        resolve(select)
    with pytest.raises(PluginError, match="CORE-P20"):
        resolve(options(plugins=["none"], plugin_file=[str(site.world())], disable_plugin=["file:world"]))


def test_nothing_at_all_says_why(site, core):
    site.policy("acme")
    site.only()
    status, _, err = core("plugins", "why", "--plugins=none")
    assert status == 1 and "CORE-P202" in err
    assert [entry.name for entry in Catalogue.scan().entries("core.schedulers")] == ["fifo"]


def test_a_name_that_matches_nothing_is_warned_of_and_contradictions_are_refused(site, core):
    path = site.world()
    status, out, _ = core("plugins", "why", f"--plugin-file={path}", "--plugins=fccs", "--json")
    assert status == 0 and "'fccs'" in json.loads(out)["warnings"][0]["message"]
    status, _, err = core("plugins", "why", "--plugins=none,fcfs")
    assert status == 2 and "CORE-C140" in err


def test_environment_and_file_say_the_same(site, core, monkeypatch, tmp_path):
    path = site.world()
    config = tmp_path / "c.toml"
    config.write_text(f"[select]\nplugin_file = ['{path}']\n")
    monkeypatch.setenv("CORE_CONFIG", str(config))
    monkeypatch.setenv("CORE_PLUGINS", "none")
    status, out, _ = core("config", "show", "--json", "--set")
    assert json.loads(out)["select.plugin_file"]["source"] == f"file {config}"
    assert json.loads(out)["select.plugins"] == {"value": ["none"], "source": "env CORE_PLUGINS"}
    status, out, _ = core("plugins", "why", "--json")
    assert status == 0 and {one["dist"] for one in json.loads(out)["plan"]["drivers"]} == {"file:world"}
