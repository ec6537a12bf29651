"""What a plugin's object lacks is found when it is bound: plugin, method, and both signatures are in the message."""

from __future__ import annotations

import pytest

from core.api.connectors import KVConnector
from core.api.descriptors import DESCRIPTORS, KVConnectorSpec, ModelSpec, SchedulerPolicySpec
from core.api.errors import PluginError
from core.api.kinds import Contract
from core.plugins.catalog import Catalogue
from core.plugins.contracts import IMPLEMENTATIONS, check_contract, check_impl
from core.plugins.drivers import Candidate, instantiate, load_descriptors, load_impl, objects_of
from core.plugins.entry import Entry
from core.plugins.fitting import methods_of, misfits_of

POLICY = """
class Whole:
    def key(self, request): return (0,)
    def victim(self, running): return 0

class Lacking:
    def key(self, request): return (0,)

class Silent(Whole):
    def key(self): return (0,)

class Greedy(Whole):
    def __init__(self, limit): ...

class Data(Whole):
    victim = 3

class Odd(Whole):
    def may_admit(self, request): return True

class Misspelt(Whole):
    def may_admitt(self, request, state): return True

class Helped(Whole):
    def admitted(self): return 0
    def _may_admitt(self): return 0

class Later:
    victim: object
    def key(self, request): return (0,)

class Delegating:
    def __getattr__(self, name): return print

class Demanding(Whole):
    def victim(self, running, *, fairly): return 0

class Open(Whole):
    def key(self, *anything, **more): return (0,)
"""


def candidate(entry, impl, **fields):
    return Candidate(entry, SchedulerPolicySpec(name="a", impl=impl, api=1, summary="", **fields))


@pytest.fixture
def policies(site):
    site.install("acme", {}, {"acme_policies": POLICY})


@pytest.mark.parametrize("name", ["Whole", "Helped", "Later", "Delegating", "Open"])
def test_what_can_be_called_fits(policies, entry, name):
    check_impl(entry(), name, load_impl(f"acme_policies:{name}", entry()))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Misspelt", "its may_admitt() is nearly may_admit(), an optional method"),
        ("Lacking", "it lacks victim(running)"),
        ("Silent", "key(request) is called, but its signature is key() (too many positional arguments)"),
        ("Greedy", "__init__() is called, but its signature is __init__(limit) (missing a required argument: 'limit')"),
        ("Data", "its victim is a int, not a method victim(running)"),
        ("Odd", "may_admit(request, state) is called, but its signature is may_admit(request)"),
        ("Demanding", "victim(running) is called, but its signature is victim(running, *, fairly)"),
    ],
)
def test_what_cannot_be_called_is_named(policies, entry, name, told):
    with pytest.raises(PluginError) as caught:
        instantiate(candidate(entry(), f"acme_policies:{name}"), {})
    assert caught.value.code == "CORE-P160"
    for part in ("scheduling policy 'a' (acme 1.0)", f"acme_policies:{name} does not fit SchedulerPolicy", told):
        assert part in caught.value.message


def test_a_policy_with_options_is_made_with_them(policies, entry):
    wants = candidate(entry(), "acme_policies:Greedy", options="x:Y")
    assert type(instantiate(wants, {"limit": 3})).__name__ == "Greedy"
    with pytest.raises(PluginError, match=r"__init__\(options, /\) is called, but its signature is __init__\(\)"):
        instantiate(candidate(entry(), "acme_policies:Whole", options="x:Y"), {})


def test_every_kind_but_kernels_and_sections_has_a_contract_and_every_contract_methods():
    assert set(DESCRIPTORS) - set(IMPLEMENTATIONS) == {"core.kernels", "core.option_sections"}
    for group, contract in IMPLEMENTATIONS.items():
        with pytest.raises(PluginError, match="does not fit"):
            check_impl(Entry(group, "empty", "acme", "1.0", ""), "acme:Empty", type("Empty", (), {}))
        assert contract.may_lack <= {"logits"}, "what core calls of everybody cannot be left out"


class Store:
    def __init__(self, options, *, block_size, bytes_per_block): ...
    def match(self, hashes, local_blocks): ...
    def load(self, blocks): ...
    def save(self, blocks): ...
    def plan_step(self): ...
    def observe(self, report): ...
    def reset(self): ...
    def stats(self): ...


CONNECTOR = KVConnectorSpec(name="s", impl="m:Store", worker_impl="m:Mover", api=2, summary="")


def mover(**changes):
    methods = {"__init__": lambda self, options: None, "bind": lambda self, caches: None}
    more = {"begin": lambda self, message: None, "end": lambda self: None, "close": lambda self: None}
    found = {**methods, **more, **changes}
    return type("Mover", (), {name: method for name, method in found.items() if method is not None})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"begin": None}, "it lacks begin(message)"),
        ({"__init__": lambda self: None}, "__init__(options) is called, but its signature is __init__()"),
        ({"bind": lambda self: None}, "bind(caches) is called, but its signature is bind()"),
    ],
)
def test_the_worker_half_of_a_connector_has_a_contract_of_its_own(entry, changes, told):
    mine = entry(group="core.kv_connectors")
    check_contract(mine, CONNECTOR, "m:Store", Store)
    check_contract(mine, CONNECTOR, "m:Mover", mover())
    with pytest.raises(PluginError, match="KVConnectorWorker") as caught:
        check_contract(mine, CONNECTOR, "m:Mover", mover(**changes))
    assert told in caught.value.message


def test_functions_that_a_descriptor_names_take_what_core_gives_them(entry):
    spec = ModelSpec(name="m", impl="m:Model", shape="m:shape", api=2, summary="", architectures=("A",))
    check_contract(entry(group="core.models"), spec, "m:shape", lambda config: None)
    with pytest.raises(PluginError, match=r"shape\(config\) is called, but its signature is shape\(\)"):
        check_contract(entry(group="core.models"), spec, "m:shape", lambda: None)


def test_an_object_that_was_made_is_held_against_a_protocol():
    contract = Contract("core.api.connectors:KVConnector")
    assert misfits_of(contract, Store({}, block_size=1, bytes_per_block=1)) == []
    assert misfits_of(contract, object()) == [f"it lacks {name}{args}" for name, args in LACKS.items()]


LACKS = {
    "match": "(hashes, local_blocks)",
    "load": "(blocks)",
    "save": "(blocks)",
    "plan_step": "()",
    "observe": "(report)",
    "reset": "()",
    "stats": "()",
}


def test_what_only_makes_the_objects_is_held_to_its_arguments(entry):
    mine = entry(group="core.tool_parsers")
    check_impl(mine, "m:FAMILY", lambda ctx: None)
    with pytest.raises(PluginError, match=r"__init__\(ctx\) is called"):
        check_impl(mine, "m:FAMILY", lambda: None)


TORCH = {"core.kernels", "core.models", "core.platforms", "core.attention_backends", "core.quantization"}
"""Kinds whose implementations import torch, which these tests do without; the kit looks at them."""


@pytest.mark.parametrize("group", sorted(set(DESCRIPTORS) - TORCH))
def test_the_installed_plugins_fit(group):
    candidates, _ = load_descriptors(Catalogue.scan().entries(group))
    for candidate in candidates:
        for path in objects_of(candidate.descriptor):
            check_contract(candidate.entry, candidate.descriptor, path, load_impl(path, candidate.entry))


def test_methods_are_those_of_the_bases_too():
    assert set(methods_of(KVConnector)) == set(LACKS)
