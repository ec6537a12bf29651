from __future__ import annotations

import json

import pytest

from core.api.descriptors import ExecutorSpec
from core.api.errors import CheckpointError, PluginError
from core.api.verdict import Verdict
from core.cli.plugins.why import choices_text
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate, LoadFailure
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.plugins.kinds import EXECUTOR
from core.selection import select as selection
from core.selection.select import Selector

GROUP = EXECUTOR.group


def candidate(name, dist="acme", version="1.0", **fields):
    spec = ExecutorSpec(name=name, impl="x:Y", api=1, summary="", **fields)
    return Candidate(Entry(GROUP, name, dist, version, f"{dist}.manifest:{name}"), spec)


class Bench:
    """A selector over ready candidates; nothing is imported."""

    def __init__(self, monkeypatch, *items, hooks=None, preferences=None):
        good = [item for item in items if isinstance(item, Candidate)]
        bad = [item for item in items if isinstance(item, LoadFailure)]
        monkeypatch.setattr(selection, "load_descriptors", lambda entries, *, usable: (good, bad))
        catalogue = Catalogue([item.entry for item in items])
        self.selector = Selector(catalogue, hooks or Hooks(), preferences or {})

    def choose(self, ask=None, refuse=None, **options):
        """Choose; `refuse` maps a name to the reasons against it, or to an error that its check raises."""

        def check(one):
            answer = (refuse or {}).get(one.entry.name, ())
            if isinstance(answer, Exception):
                raise answer
            return Verdict.of(*answer)

        return self.selector.choose(EXECUTOR, ask, check=check, **options)

    def refused(self, ask=None, refuse=None, **options):
        with pytest.raises(Exception) as caught:
            self.choose(ask, refuse, **options)
        return caught.value

    @property
    def states(self):
        return {row.name: row.state for row in self.selector.reports[-1].rows}


@pytest.fixture
def bench(monkeypatch):
    return lambda *items, **options: Bench(monkeypatch, *items, **options)


def failure(name, dist="acme"):
    return LoadFailure(Entry(GROUP, name, dist, "1.0", "x:Y"), "CORE-P103", "it failed to import: OSError: gone")


@pytest.mark.parametrize(
    ("candidates", "preferences", "winner"),
    [
        ([candidate("a", band=2), candidate("b", band=3)], {}, "b"),
        ([candidate("a", priority=60), candidate("b", priority=50)], {}, "a"),
        ([candidate("a", priority=60), candidate("b", priority=50)], {f"{GROUP}:b": 2}, "b"),
        ([candidate("a", band=2, priority=100), candidate("b", band=3, priority=0)], {}, "b"),
        ([candidate("a", band=4, maturity="experimental"), candidate("b", band=1)], {}, "b"),
        ([candidate("a", version="1.9"), candidate("b", version="1.10")], {}, "b"),
        ([candidate("a", dist="zinc"), candidate("b", dist="acme")], {}, "b"),
        ([candidate("a", version="odd"), candidate("b", version="1")], {}, "b"),
    ],
)
def test_the_score_decides_then_version_then_distribution(bench, candidates, preferences, winner):
    for items in (candidates, candidates[::-1]):
        assert bench(*items, preferences=preferences).choose().entry.name == winner


def test_a_preference_never_overrules_a_verdict(bench):
    tried = bench(candidate("a"), candidate("b"), preferences={f"{GROUP}:b": 99})
    assert tried.choose(refuse={"b": ["head_dim 80"]}).entry.name == "a"
    assert tried.states == {"a": "chosen", "b": "rejected"}


def test_a_tie_is_noted(bench):
    tried = bench(candidate("a"), candidate("b"))
    tried.choose()
    assert tried.selector.reports[0].notes == ["'a' and 'b' have the same score"]


@pytest.mark.parametrize("ask", ["a", "a@acme", " a ", "auto", ""])
def test_an_explicit_choice_or_auto(bench, ask):
    chosen = bench(candidate("a"), candidate("b", band=4)).choose(ask)
    assert chosen.entry.name == ("a" if "a" in ask.split("@")[0].split() else "b")


def test_an_experimental_plugin_can_be_asked_for(bench):
    assert bench(candidate("a", maturity="experimental"), candidate("b")).choose("a").entry.name == "a"


def test_missing_is_p101(bench):
    error = bench(candidate("inproc"), candidate("far")).refused("inporc")
    assert error.code == "CORE-P101"
    assert "Installed: far, inproc." in error.message and error.hint.startswith(
        "Did you mean 'inproc'? Supported alternatives here: inproc, far."
    )


def test_unsupported_is_p201_with_every_reason_and_the_alternatives(bench):
    tried = bench(candidate("a", band=4), candidate("b"), candidate("c"), candidate("d"))
    error = tried.refused("a", {"a": ["head_dim 80", "kv dtype fp8"], "d": ["no"]})
    assert error.code == "CORE-P201"
    assert "executor 'a' (acme 1.0) cannot serve here: head_dim 80; kv dtype fp8." in error.message
    assert "alternatives here: b, c." in error.hint and "would take b" in error.hint
    assert "Not supported: d (acme 1.0): no." in error.hint
    assert tried.states == {"a": "rejected", "b": "ok", "c": "ok", "d": "rejected"}
    assert tried.selector.reports[0].chosen is None
    assert tried.selector.reports[0].error is error


def test_unsupported_without_alternatives_says_so(bench):
    assert "No other installed executor" in bench(candidate("a")).refused("a", {"a": ["no"]}).hint


def test_a_failed_plugin_is_fatal_when_asked_for_and_shown_when_not(bench):
    tried = bench(candidate("b"), failure("a"))
    error = tried.refused("a")
    assert error.code == "CORE-P103"
    assert "OSError: gone" in error.message and "requested by --executor a" in error.hint
    assert tried.choose().entry.name == "b"
    assert tried.states == {"a": "failed", "b": "chosen"}


@pytest.mark.parametrize("raised", [PluginError("CORE-P108", "probe broke"), CheckpointError("CORE-M105", "bad file")])
def test_a_check_that_raises_makes_a_failed_candidate(bench, raised):
    tried = bench(candidate("a"), candidate("b"))
    assert tried.choose(refuse={"a": raised}).entry.name == "b"
    assert tried.states == {"a": "failed", "b": "chosen"}
    error = tried.refused("a", {"a": raised})
    assert (type(error), error.code, error.message) == (type(raised), raised.code, raised.message)
    assert "alternatives here: b" in error.hint


def test_a_check_that_gives_no_verdict_is_the_plugins_error(bench):
    tried = bench(candidate("a"))
    with pytest.raises(PluginError, match="its check gave a bool, not a Verdict"):
        tried.selector.choose(EXECUTOR, check=lambda one: True)


def test_a_list_takes_the_first_that_is_supported(bench):
    items = (candidate("a"), candidate("b"), candidate("c", band=4), failure("f"))
    assert bench(*items).choose("f, missing, a, b", {"a": ["no"]}).entry.name == "b"


def test_a_list_of_which_nothing_can_serve_names_every_reason(bench):
    error = bench(candidate("a"), candidate("b"), failure("f")).refused("f,missing,a", {"a": ["head_dim 80"]})
    assert error.code == "CORE-P201"
    assert "OSError: gone" in error.message and "no executor named 'missing'" in error.message
    assert "head_dim 80" in error.message and "alternatives here: b" in error.hint


@pytest.mark.parametrize("ask", ["a", "b,a", None])
def test_a_name_of_two_distributions_must_be_settled_by_the_user(bench, ask):
    tried = bench(candidate("a", band=4), candidate("a", dist="bolt"), candidate("b"))
    error = tried.refused(ask, {"b": ["no"]})
    assert error.code == "CORE-P102"
    assert "acme 1.0 and bolt 1.0" in error.message
    assert tried.choose("a@bolt").entry.dist == "bolt"


def test_a_duplicate_that_does_not_win_disturbs_nobody(bench):
    assert bench(candidate("a"), candidate("a", dist="bolt"), candidate("b", band=4)).choose().entry.name == "b"


@pytest.mark.parametrize(
    ("items", "text"),
    [([], "no executor is installed"), ([candidate("a")], "no installed executor can serve for x. a (acme 1.0): no")],
)
def test_nothing_to_choose_is_p203(bench, items, text):
    error = bench(*items).refused(refuse={"a": ["no"]}, subject="x")
    assert error.code == "CORE-P203" and text in error.message


def test_the_error_for_nothing_can_be_the_callers(bench):
    error = CheckpointError("CORE-M102", "none")
    assert bench().refused(none=lambda report: error) is error


def test_a_hook_may_choose_among_the_usable_but_never_against_the_user(bench, site):
    source = "from core.api import hookimpl\n@hookimpl\ndef core_select(group, candidates, request):\n"
    source += "    assert candidates == ('b', 'a')\n    return 'a' if request['small'] else None\n"
    site.install("adviser", {"core.plugins": {"adviser": "adviser_mod"}}, {"adviser_mod": source})
    hooks = Hooks(site.catalogue().entries("core.plugins"))
    items = (candidate("a"), candidate("b", band=3), candidate("c", band=4))
    refuse = {"c": ["no"]}
    tried = bench(*items, hooks=hooks)
    assert tried.choose(refuse=refuse, request={"small": True}).entry.name == "a"
    assert tried.selector.reports[0].how == "chosen by adviser (adviser 1.0)"
    assert tried.choose(refuse=refuse, request={"small": False}).entry.name == "b"
    assert tried.choose("c").entry.name == "c"


def test_the_report_is_plain_data_and_a_table(bench):

    tried = bench(candidate("a"), candidate("b", band=3), candidate("c"), failure("f"))
    tried.choose(refuse={"c": ["kv dtype [fp8]"]}, subject="1 worker")
    data = json.loads(json.dumps(tried.selector.reports[0].to_dict()))
    assert data["chosen"] == "b" and data["how"] == "chosen by score" and data["error"] is None
    assert [(row["name"], row["state"], row["score"]) for row in data["candidates"]] == [
        ("b", "chosen", 3050),
        ("a", "ok", 2050),
        ("c", "rejected", None),
        ("f", "failed", None),
    ]
    text = choices_text(tried.selector.reports)
    assert "executor (1 worker)" in text and "kv dtype [fp8]" in text and "OSError: gone (CORE-P103)" in text
