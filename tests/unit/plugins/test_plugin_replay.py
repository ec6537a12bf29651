from __future__ import annotations

import subprocess
import sys

import pytest

from core.api.errors import PluginError
from core.config.resolved import Options
from core.plugins.active import enter
from core.plugins.plan import PluginPlan
from core.selection.resolver import resolve

HOOK = """
from core.api import hookimpl
SEEN = []
@hookimpl
def core_engine_event(event, details):
    SEEN.append((event, dict(details)))
"""


@pytest.fixture
def world(site):
    site.install_world()
    site.install("acme-hooks", {"core.plugins": {"watch": "watch_mod"}}, {"watch_mod": HOOK})
    return site


@pytest.fixture
def plan(world):
    options = Options.model_validate({"select": {"kv_connector": ["store"]}})
    return resolve(options, catalogue=world.catalogue()).config.plan


def changed(plan, group, **changes):
    drivers = [one.model_copy(update=changes) if one.group == group else one for one in plan.drivers]
    return plan.model_copy(update={"drivers": tuple(drivers)})


def test_the_plan_gives_the_same_plugins_again(world, plan):
    active = enter(PluginPlan.model_validate_json(plan.model_dump_json()), catalogue=world.catalogue())
    assert active.plan.digest == plan.digest
    assert active.spec("core.attention_backends").name == "quick"
    assert active.impl("core.attention_backends").__name__ == "Attention"
    assert active.impl("core.executors") is active.impl("core.executors")
    assert active.options("core.executors") == {"threads": 2}
    ((planned, spec, impl),) = active.impls("core.kv_connectors")
    assert (planned.name, spec.name, impl.__name__) == ("store", "store", "Nothing")
    assert active.load(planned, spec.worker_impl).__name__ == "Attention"


def test_what_the_plan_lacks(world, plan):
    active = enter(plan, catalogue=world.catalogue())
    assert active.has("core.executors") and not active.has("core.weight_transfer")
    assert active.impls("core.weight_transfer") == []
    with pytest.raises(PluginError, match="has no weight transfer") as caught:
        active.impl("core.weight_transfer")
    assert caught.value.code == "CORE-P301"


def test_events_reach_the_hooks_of_the_plan(world, plan):
    enter(plan, catalogue=world.catalogue()).events("ready", {"blocks": 2})
    assert sys.modules["watch_mod"].SEEN == [("ready", {"blocks": 2})]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": "0.9"}, "of core-plugin-world 0.9 (world.manifest:INPROC), but here is core-plugin-world 1.0"),
        ({"dist": "core-plugin-ray"}, "of core-plugin-ray 1.0 (world.manifest:INPROC), but here is nothing."),
        ({"value": "world.manifest:OTHER"}, "but here is core-plugin-world 1.0 (world.manifest:INPROC)"),
        ({"api": 2}, "has API 2, here it has 1"),
    ],
)
def test_another_plugin_here_is_p300(world, plan, changes, text):
    with pytest.raises(PluginError) as caught:
        enter(changed(plan, "core.executors", **changes), catalogue=world.catalogue())
    assert caught.value.code == "CORE-P300"
    assert text in caught.value.message


def test_a_missing_hook_plugin_is_p300_too(world, plan):
    (hook,) = plan.hooks
    with pytest.raises(PluginError, match="hook plugin 'watch'") as caught:
        enter(
            plan.model_copy(update={"hooks": (hook.model_copy(update={"version": "7"}),)}), catalogue=world.catalogue()
        )
    assert caught.value.code == "CORE-P300"


def test_a_plugin_that_broke_since_is_named(world, plan):
    (world.root / "world" / "manifest.py").write_text("import gone_library")
    for name in [name for name in sys.modules if name.startswith("world")]:
        del sys.modules[name]
    with pytest.raises(PluginError, match="requested by the plugin plan") as caught:
        enter(plan, catalogue=world.catalogue())
    assert caught.value.code == "CORE-P103" and "gone_library" in caught.value.message


def test_disabling_in_the_child_changes_nothing(world, plan):
    assert enter(plan, catalogue=world.catalogue("inproc")).spec("core.executors").name == "inproc"


def test_any_change_changes_the_digest(plan):
    assert len(plan.digest) == 64
    assert changed(plan, "core.executors", version="2").digest != plan.digest
    assert plan.model_copy(update={"drivers": plan.drivers[::-1]}).digest != plan.digest


def test_a_fresh_process_replays_a_plan(world, plan):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from core.plugins.active import enter\nfrom core.plugins.plan import PluginPlan\n"
        "plan = PluginPlan.model_validate_json(sys.stdin.read())\n"
        "print(enter(plan).impl('core.attention_backends').__name__, plan.digest, 'torch' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(world.root)]
    done = subprocess.run(command, input=plan.model_dump_json(), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Attention", plan.digest, "False"]
