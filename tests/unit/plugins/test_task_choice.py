"""Which task an engine has: a plugin's that takes the model, or core's own; and what stops a start."""

from __future__ import annotations

import pytest

from core.api import CheckpointInfo, ConfigError, ModelShape, PluginError, PoolingShape
from core.options.model import ModelOptions
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.selection.select import Selector
from core.selection.tasks import choose_task

POOL = Entry("core.tasks", "pool", "core-plugin-pool", "0.1.0", "core_plugin_pool.manifest:POOL")
MODULE = """
from core.api import ConfigError, Task, TaskChoice, TaskSpec


class Odd(Task):
    name = "odd"
    step_tokens = 77

    def settle(self, settler, step, alive, result, outputs): ...


def never(facts): ...
def fails(facts): 1 / 0
def refuses(facts): raise ConfigError("CORE-C190", "not this one")
def takes(facts): return TaskChoice(9, {"asked": facts.settings["runner"]})


NEVER, FAILS, REFUSES, TAKES, GREEDY = (
    TaskSpec(name="odd", impl="odd_tasks:Odd", worker_impl="odd_tasks:W", front_impl="odd_tasks:F", api=1,
             summary="", choose=f"odd_tasks:{one}", settings=settings)
    for one, settings in [(name, ()) for name in ("never", "fails", "refuses")]
    + [("takes", ("runner",)), ("takes", ("api_key",))]
)
"""


@pytest.fixture
def choose(site):
    """Choose for a model that generates, or that has a shape of pooling, among the tasks of these entries."""
    site.install("acme", {}, {"odd_tasks": MODULE})
    sizes = dict.fromkeys(("vocab_size", "num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim"), 8)

    def choose(*entries, pooling=None, **options):
        found = [one if isinstance(one, Entry) else Entry("core.tasks", "odd", "acme", "1.0", one) for one in entries]
        checkpoint = CheckpointInfo(path="/nowhere", format="fake", architecture="Fake", config={})
        shape = ModelShape(max_positions=64, pooling=pooling, **sizes)
        selector = Selector(Catalogue(found), Hooks())
        return choose_task(selector, ModelOptions(model="m", **options), checkpoint, shape), selector

    return choose


def test_a_task_takes_the_model_with_what_follows_from_it(choose):
    task, selector = choose("odd_tasks:TAKES", POOL, runner="generate")
    assert (task.name, task.context, task.step_tokens, task.decodes) == ("odd", 9, 77, False)
    assert task.data == {"asked": "generate"} and not task.drives("core.io_processors")
    (report,) = selector.reports
    assert [(row.name, row.state) for row in report.rows] == [("odd", "chosen"), ("pool", "rejected")]
    assert report.rows[1].reasons == ("it does not take Fake as it is asked for",)


def test_where_nobody_takes_a_model_core_generates_without_a_report(choose):
    for given in ((), (POOL,), ("odd_tasks:NEVER",)):
        task, selector = choose(*given)
        assert (task.name, task.context, task.decodes, task.plugin) == ("generate", 64, True, None)
        assert selector.reports == [] and task.faults == ()


def test_what_cannot_be_asked_is_told_and_the_others_go_on(choose):
    for entry, code in (("odd_tasks:FAILS", "CORE-P108"), ("odd_tasks:GREEDY", "CORE-P132")):
        task, _ = choose(entry)
        assert task.name == "generate" and [fault.code for fault in task.faults] == [code]
        assert choose(entry, POOL, runner="pooling")[0].name == "pool"


def test_what_a_task_says_of_the_users_wish_stops_the_start(choose):
    with pytest.raises(ConfigError, match="CORE-C190 not this one"):
        choose("odd_tasks:REFUSES")
    with pytest.raises(ConfigError, match=r"CORE-C190 .*does not generate tokens"):
        choose(POOL, pooling=PoolingShape(), runner="generate")


@pytest.mark.parametrize("entries", [(), ("odd_tasks:NEVER",)])
def test_what_gives_no_tokens_needs_somebody_who_takes_it(choose, entries):
    with pytest.raises(PluginError, match="CORE-P203 Fake gives no tokens") as refused:
        choose(*entries, pooling=PoolingShape())
    assert refused.value.hint == "Install one: pip install core-plugin-pool."
    with pytest.raises(ConfigError, match="CORE-C190 Fake is to pool"):
        choose(*entries, runner="pooling")
