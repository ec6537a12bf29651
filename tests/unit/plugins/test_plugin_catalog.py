from __future__ import annotations

import sys
import time

import pytest
from core_plugin_author.doctor.environment import examine_environment

from core.api.errors import PluginError
from core.cli.host.plugins import AllPlugins, Scope
from core.plugins.catalog import Catalogue
from core.plugins.entry import matches

GROUP = "core.schedulers"


def test_reads_installed_distributions_without_importing_them(site):
    site.install("acme", {GROUP: {"a": "acme_mod:A"}}, {"acme_mod": "raise RuntimeError('imported')"}, version="2.5")
    (entry,) = site.catalogue().entries(GROUP)
    assert (entry.name, entry.dist, entry.version, entry.value) == ("a", "acme", "2.5", "acme_mod:A")
    assert "acme_mod" not in sys.modules


def test_a_scan_takes_milliseconds():
    Catalogue.scan()
    began = time.process_time()
    Catalogue.scan()
    assert time.process_time() - began < 0.25


def test_one_distribution_listed_twice_on_the_path_is_one(site, tmp_path_factory, monkeypatch):
    site.install("acme", {GROUP: {"a": "acme_mod:A"}})
    other = type(site)(tmp_path_factory.mktemp("other"))
    other.install("acme", {GROUP: {"a": "acme_mod:A"}})
    monkeypatch.syspath_prepend(str(other.root))
    assert len(site.catalogue().entries(GROUP)) == 1


def test_a_stale_second_version_is_shadowed_by_the_first_on_the_path(site, tmp_path_factory, monkeypatch):
    site.install("acme", {GROUP: {"a": "acme_mod:A"}}, version="1.0")
    newer = type(site)(tmp_path_factory.mktemp("newer"))
    newer.install("acme", {GROUP: {"a": "acme_mod:A"}}, version="2.0")
    monkeypatch.syspath_prepend(str(newer.root))
    assert site.catalogue().find(GROUP, "a").version == "2.0"


@pytest.mark.parametrize("metadata", [None, "Metadata-Version: 2.1\nVersion: 1.0\n"])
def test_a_distribution_without_a_name_is_left_out_with_a_word(site, caplog, metadata):
    site.install("acme", {GROUP: {"a": "acme_mod:A"}})
    rest = site.root / "half_gone-1.0.dist-info"
    rest.mkdir()
    (rest / "entry_points.txt").write_text(f"[{GROUP}]\nb = half_gone:B\n")
    if metadata is not None:
        (rest / "METADATA").write_text(metadata)
    assert [entry.name for entry in site.catalogue().entries(GROUP)] == ["a"]
    assert "CORE-P131" in caplog.text and str(rest) in caplog.text
    assert [one.code for one in examine_environment(AllPlugins(), Scope(Catalogue([])), [])].count("CORE-P131") == 1


def test_equal_entries_of_a_list_count_once(entry):
    assert len(Catalogue([entry(), entry()]).entries(GROUP)) == 1


@pytest.mark.parametrize("text", ["a", "a@Acme", "schedulers:a", "core.schedulers:a", "schedulers:a@acme", "ACME"])
def test_what_names_a_plugin(entry, text):
    assert matches(text, entry(dist="acme"))
    assert not matches(text, entry(name="b", dist="bolt"))
    assert not matches(f"executors:{text}", entry(dist="acme"))


def test_two_distributions_with_one_name_are_an_error_that_names_both(entry):
    catalogue = Catalogue([entry(dist="acme"), entry(dist="Bolt_Parts", version="3")])
    with pytest.raises(PluginError) as caught:
        catalogue.find(GROUP, "a")
    assert caught.value.code == "CORE-P102"
    assert "acme 1.0" in caught.value.message and "Bolt_Parts 3" in caught.value.message
    assert "--scheduler-policy a@acme" in caught.value.hint
    assert catalogue.find(GROUP, "a@bolt-parts").dist == "Bolt_Parts"


def test_a_duplicate_nobody_needs_is_no_error(entry):
    catalogue = Catalogue([entry(dist="acme"), entry(dist="bolt"), entry(name="b")])
    assert catalogue.find(GROUP, "b").name == "b"


@pytest.mark.parametrize(
    ("ask", "message", "hint"),
    [
        ("fcsf", "Installed: fcfs, priority.", "Did you mean 'fcfs'?"),
        ("zzz", "Installed: fcfs, priority.", ""),
        ("fcfs@bolt", "distribution 'bolt' provides no scheduling policy named 'fcfs'; it comes from acme", ""),
    ],
)
def test_a_missing_name_tells_what_is_installed(entry, ask, message, hint):
    catalogue = Catalogue([entry("fcfs"), entry("priority")])
    with pytest.raises(PluginError) as caught:
        catalogue.find(GROUP, ask)
    assert caught.value.code == "CORE-P101"
    assert message in caught.value.message
    assert caught.value.hint == hint


def test_an_empty_group_says_so():
    with pytest.raises(PluginError, match="None is installed"):
        Catalogue([]).find(GROUP, "a")


@pytest.mark.parametrize("text", ["a", "core.schedulers:a", "schedulers:a", "acme-parts"])
def test_disabling_by_name_group_or_distribution(entry, text):
    catalogue = Catalogue([entry(dist="Acme_Parts"), entry("b", dist="other")], [text])
    assert [one.name for one in catalogue.entries(GROUP)] == ["b"]
    assert [one.name for one in catalogue.disabled_entries()] == ["a"]
    with pytest.raises(PluginError, match=f"disabled by '{text}'") as caught:
        catalogue.find(GROUP, "a")
    assert caught.value.code == "CORE-P101"


def test_disabling_in_another_group_leaves_it(entry):
    assert Catalogue([entry()], ["executors:a"]).entries(GROUP)


def test_disabling_one_owner_settles_a_duplicate(entry):
    assert Catalogue([entry(dist="acme"), entry(dist="bolt")]).without(["bolt"]).find(GROUP, "a").dist == "acme"


def test_a_disable_that_matches_nothing_is_reported(entry):
    assert Catalogue([entry()], ["a", "tpyo"]).useless_disables() == ["tpyo"]


def test_the_order_does_not_depend_on_the_path(entry):
    entries = [entry("b"), entry("a", dist="z"), entry("a", dist="y")]
    assert Catalogue(entries).entries(GROUP) == Catalogue(reversed(entries)).entries(GROUP)
