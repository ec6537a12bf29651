"""What a command of anybody's is told of installed plugins: scope, descriptors, checks, choices, distributions."""

from __future__ import annotations

import json
import re

import pytest

from core.plugins.catalog import Catalogue

MANIFEST = """
from core.api import CommandSpec
SPEC = CommandSpec(name="plugins-graph", impl="acme_graph:Graph", api=1, summary="Draw what is installed.")
"""

GRAPH = """
import json, subprocess, sys
from core.api import PluginError


class Graph:
    def bind(self, host):
        self.host, self.plugins = host, host.plugins

    def register(self, parser):
        parser.add_argument("what", help="What to draw.").completer = self.plugins.complete
        {flags}

    def run(self, args):
        print(json.dumps(getattr(self, args.what)(args)))

    def listed(self, args):
        scope = self.plugins.scope(args)
        rows = {{one.title: [one.owner, self.plugins.label(one.group), scope.against(one)] for one in scope.every()}}
        return {{"rows": rows, "usable": [one.title for one in scope.usable()], "files": list(scope.files)}}

    def named(self, args):
        return [one.owner for one in self.plugins.scope(args).usable("fifo")]

    def opened(self, args):
        return [one.dist for one in self.plugins.scope(args).opened().usable("executors:inproc")]

    def policies(self, args):
        scope = self.plugins.scope(args)
        return [*scope.usable("schedulers:fifo"), *scope.usable("schedulers:ruin")]

    def described(self, args):
        told = {{}}
        for one in self.policies(args):
            try:
                told[one.dist] = self.plugins.descriptor(one).api
            except PluginError as error:
                told[one.dist] = error.code
        return told

    def checked(self, args):
        checks = {{one.dist: self.plugins.check(one) for one in self.policies(args)}}
        return {{dist: [list(check.objects), [one.code for one in check.faults]] for dist, check in checks.items()}}

    def elsewhere(self, args):
        with self.host.terminal.progress("processes", 1) as progress:
            done = subprocess.run([*self.host.in_process("acme_graph:child")], capture_output=True, text=True)
            progress.step("child")
        return [done.returncode, done.stdout.split()]

    def chosen(self, args):
        choice = self.plugins.choose(self.host.options.load(args))
        rows = {{}}
        for one in choice.selections:
            rows[one.group] = [each.name for each in one.considered if each.state == "chosen"]
        error = choice.error.code if choice.error else None
        lock = None if error else choice.lock()["digest"] == choice.digest
        facts = [choice.model, choice.architecture, choice.dtype, list(choice.changes), error, lock]
        return {{"selections": rows, "plugins": [one.name for one in choice.plugins], "facts": facts}}

    def distributions(self, args):
        return {{one.name: [one.version, str(one.place), len(one.plugins)] for one in self.plugins.distributions()}}


def child(host):
    print(sys.path[0] != "", "core.platforms" in host.plugins.kinds())
    return 7
"""


@pytest.fixture
def graph(site, core):
    """`graph(WORD...)`: install a stranger's `core plugins graph`, run it, and return what it prints."""

    def run(*words, flags="self.plugins.add_flags(parser)"):
        modules = {"acme_graph": GRAPH.format(flags=flags), "acme_spec": MANIFEST}
        if "acme-graph" not in site.dists:
            site.install("acme-graph", {"core.commands": {"plugins-graph": "acme_spec:SPEC"}}, modules)
        status, out, err = core("plugins", "graph", *words)
        assert status == 0, err
        return json.loads(out)

    return run


@pytest.fixture
def two(site):
    site.policy("acme")
    site.policy("ruin", name="ruin", impl="import a_library_nobody_has")
    return site


def test_what_is_installed_is_told_with_what_takes_no_part(graph, two):
    told = graph("listed", "--disable-plugin=schedulers:fifo", "--plugins=none", f"--plugin-file={two.world()}")
    assert told["rows"]["schedulers:fifo"] == [
        "acme 1.0",
        "scheduling policy",
        "it is disabled by 'schedulers:fifo'",
    ]
    assert told["rows"]["schedulers:ruin"][2] == "--plugins leaves it out"
    assert told["usable"] == [] and told["files"] == [str(two.root.parent / "world.py")]


def test_a_name_means_what_it_means_for_core(graph, two, core):
    assert graph("named") == ["acme 1.0"]
    status, _, err = core("plugins", "graph", "named", "--disable-plugin=acme")
    assert status == 1 and "CORE-P101" in err and "it is disabled by 'acme'" in err


def test_plugin_files_are_executed_when_the_command_says_so(graph, two):
    assert graph("opened", f"--plugin-file={two.world()}") == ["core-plugin-executors", "file:world"]


def test_descriptors_and_contracts(graph, two):
    assert graph("described") == {"acme": 1, "ruin": 1}
    assert graph("checked") == {"acme": [["acme_impl:Policy"], []], "ruin": [["ruin_impl:Policy"], ["CORE-P103"]]}
    two.policy("old", name="ruin", spec="api=9")
    assert graph("described")["old"] == "CORE-P104"


def test_a_function_of_the_command_runs_in_another_process(graph, monkeypatch, site):
    monkeypatch.setenv("PYTHONPATH", str(site.root), prepend=":")
    assert graph("elsewhere") == [7, ["True", "True"]]


def test_a_start_is_chosen_and_not_begun(graph, site):
    start = ["--plugins=none", f"--plugin-file={site.world()}"]
    told = graph("chosen", *start, flags="self.host.options.add(parser)")
    assert told["selections"]["core.platforms"] == ["host"] and "fcfs" in told["plugins"]
    changes = ["scheduler.max_num_seqs"]
    *facts, patches, error, lock = told["facts"]
    assert (facts, error, lock) == (["demo", "LlamaForCausalLM", "float32"], None, True)
    assert [re.match(r"[a-z_.]+", one)[0] for one in patches] == changes
    told = graph("chosen", *start, "--executor=absent")
    assert told["plugins"] == [] and told["facts"] == ["", "", "", [], "CORE-P101", None]
    assert told["selections"]["core.platforms"] == ["host"]


def test_distributions_are_told_as_their_metadata_says(graph, two):
    assert graph("distributions")["acme"] == ["1.0", str(two.root), 1]


def test_two_distributions_with_one_case_are_refused(graph, site, core):
    graph("listed")
    site.install("bolt-graph", {"core.commands": {"plugins-graph": "acme_spec:SPEC"}})
    status, _, err = core("plugins", "graph", "listed")
    assert status == 1 and "CORE-P102" in err and "acme-graph 1.0 and bolt-graph 1.0" in err


CASES = [
    *("list", "info", "why", "doctor", "new", "test", "install", "uninstall", "enable", "disable"),
    *("lock", "verify", "parse", "api", "hooks"),
]


def test_cases_of_the_bundle_stand_at_their_places_and_others_behind(graph, core):
    graph("listed")
    _, out, _ = core("plugins", "--help")
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines() if re.match("    [a-z]", line)}
    assert list(lines) == [*CASES, "graph"] and lines["graph"] == "From acme-graph 1.0."
    assert core("plugins", "nothing")[2].endswith("'hooks', 'graph'). See `core plugins --help`.\n")


@pytest.mark.parametrize("case", ["new", "doctor", "test", "lock"])
def test_without_the_tools_of_authors_the_rest_works_and_says_what_to_install(core, monkeypatch, case):
    scan = Catalogue.scan

    def rest(cls, disabled=()):
        return Catalogue([one for one in scan().every() if one.dist != "core-plugin-author"], disabled)

    monkeypatch.setattr(Catalogue, "scan", classmethod(rest))
    status, _, err = core("plugins", case, "x", "y")
    assert status == 2
    assert f"core plugins: unknown command '{case}'. 'plugins {case}' comes with core-plugin-author" in err
    _, out, _ = core("plugins", "--help")
    assert not re.search(rf"^    {case} ", out, re.M) and re.search("^    verify ", out, re.M)
