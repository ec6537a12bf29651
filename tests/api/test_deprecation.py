"""Shims for old names: they work with one warning, and end when they said they would."""

from __future__ import annotations

import ast
import importlib
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version
from pydantic import BaseModel

import core.api
from core import __version__
from core.api.deprecation import CoreDeprecationWarning, Removed, Renamed, look_up, renamed_keyword, renamed_method
from core.api.record import Record
from core.plugins.catalog import Catalogue
from core.plugins.hooks import Hooks
from core.plugins.kinds import HOOKS_GROUP

pytestmark = pytest.mark.covers("CLI-06")
ROOT = Path(__file__).parents[2]
LATER, BEFORE = "99.0", "0.0.1"


@pytest.fixture
def heard():
    """The warnings as a user sees them: once per place."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield caught


def says(heard, *words):
    (one,) = heard
    assert issubclass(one.category, CoreDeprecationWarning)
    for word in (*words, LATER):
        assert word in str(one.message)
    return one


# -- names of modules ----------------------------------------------------------------------------------------------


@pytest.fixture
def module():
    """A module that gave a name away, one to a place that has expired, and lost one."""
    made = types.ModuleType("old_home")
    table = {
        "Thing": Renamed(new="core.api.verdict:Verdict", removed_in=LATER),
        "Late": Renamed(new="core.api.verdict:Verdict", removed_in=BEFORE),
        "gone": Removed(since="0.0.1", instead="Ask the tokenizer."),
    }
    made.__getattr__ = lambda name: look_up("old_home", name, table)
    sys.modules["old_home"] = made
    yield made
    del sys.modules["old_home"]


def test_a_name_that_moved_is_found_with_one_warning_per_place(module, heard):
    for _ in range(3):
        found = module.Thing
    assert found is core.api.Verdict
    assert says(heard, "old_home.Thing", "core.api.verdict.Verdict").filename == __file__
    from old_home import Thing

    assert Thing is core.api.Verdict and len(heard) == 2
    assert {one.filename for one in heard} == {__file__}


def test_names_that_are_gone_say_so(module):
    with pytest.raises(AttributeError, match=r"old_home\.gone was removed in core 0\.0\.1\. Ask the tokenizer\."):
        _ = module.gone
    with pytest.raises(AttributeError, match=r"old_home\.Late was removed in core 0\.0\.1: use core\.api\.verdict"):
        _ = module.Late
    with pytest.raises(AttributeError, match="has no attribute 'never'"):
        _ = module.never
    with pytest.raises(ImportError, match="gone"):
        from old_home import gone  # noqa: F401


def test_the_public_module_looks_into_its_table(monkeypatch, heard):
    monkeypatch.setattr(core.api, "_DEPRECATED", {"Judgement": Renamed(new="core.api:Verdict", removed_in=LATER)})
    assert core.api.Judgement is core.api.Verdict
    says(heard, "core.api.Judgement", "core.api.Verdict")


# -- keywords ------------------------------------------------------------------------------------------------------


@renamed_keyword("size", "num_bytes", removed_in=LATER)
def store(name: str, *, num_bytes: int = 0) -> tuple[str, int]:
    """Keep something."""
    return name, num_bytes


@renamed_keyword("size", "num_bytes", removed_in=BEFORE)
def expired(*, num_bytes: int = 0) -> int:
    return num_bytes


def test_an_old_keyword_works_with_one_warning_per_place(heard):
    for _ in range(3):
        assert store("a", size=3) == ("a", 3)
    assert says(heard, "argument 'size' of store()", "num_bytes").filename == __file__
    assert store("a", num_bytes=4) == ("a", 4) and len(heard) == 1
    assert store.__doc__ == "Keep something."
    with pytest.raises(TypeError, match="'size' of store\\(\\) is the old name of 'num_bytes'"):
        store("a", size=1, num_bytes=2)
    with pytest.raises(TypeError, match=r"was removed in core 0\.0\.1: use num_bytes"):
        expired(size=1)


# -- methods and attributes of classes -----------------------------------------------------------------------------


class Base:
    """As core would have it: the method is called `read` now."""

    def read(self, text: str) -> str:
        return f"base {text}"


class Old(Base):
    def parse(self, text: str) -> str:
        return f"old {text}"


class New(Old):
    def read(self, text: str) -> str:
        return f"new {text}"


def bound(implementation, removed_in=LATER):
    return renamed_method(implementation, "read", "parse", removed_in=removed_in)


def test_an_old_override_is_called_with_one_warning(heard):
    for _ in range(3):
        assert bound(Old())("x") == "old x"
    one = says(heard, "method 'parse' of Old", "use read")
    assert (one.filename, one.lineno) == (__file__, Old.parse.__code__.co_firstlineno)


def test_new_overrides_and_defaults_are_not_warned_of(heard):
    assert bound(Base())("x") == "base x" and bound(New())("x") == "new x"
    assert heard == []
    with pytest.raises(AttributeError, match=r"was removed in core 0\.0\.1: use read"):
        bound(Old(), BEFORE)
    with pytest.raises(AttributeError, match="'read'"):
        bound(object())


class Element:
    modality = Removed(since="0.2", instead="The field it is in says it.")


class Facts(Record):
    modality = Removed(since="0.2", instead="The field it is in says it.")
    value: int = 1


class Row(BaseModel):
    value: int = 1

    def __getattr__(self, name):
        return look_up("Row", name, {"modality": Element.__dict__["modality"]})


@pytest.mark.parametrize("thing", [Element, Element(), Facts(value=2), Row()])
def test_a_removed_attribute_says_what_to_do(thing):
    with pytest.raises(AttributeError, match=r"modality was removed in core 0\.2\. The field it is in says it\."):
        _ = thing.modality
    assert not hasattr(thing, "modality")


# -- hooks ---------------------------------------------------------------------------------------------------------

HOOK = {
    "core_adjust": Renamed(new="core_configure", removed_in=LATER),
    "core_judge": Renamed(new="core_validate", removed_in=BEFORE),
}
OLD_HOOK = """
from core.api import ConfigPatch, hookimpl

@hookimpl
def core_adjust(config):
    return [ConfigPatch(path="kv.block_size", value=config["size"], reason="old")]
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A distribution outside of this repository, whose hook module has this source."""

    def install(source):
        info = tmp_path / "acme_old_hooks-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-old-hooks\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[core.plugins]\nacme_old = acme_old_hooks\n")
        (tmp_path / "acme_old_hooks.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        return [entry for entry in Catalogue.scan().entries(HOOKS_GROUP) if entry.name == "acme_old"]

    yield install
    sys.modules.pop("acme_old_hooks", None)


def test_a_plugin_with_an_old_hook_works_with_one_warning(plugin, heard, tmp_path):
    entries = plugin(OLD_HOOK)
    for _ in range(2):  # the command line, and the engine in the same process
        hooks = Hooks(entries, renamed=HOOK)
    assert hooks.failures == [] and hooks.has("core_configure")
    (proposal,) = hooks.configure({"size": 32}, {})
    assert (proposal.patch.path, proposal.patch.value, proposal.entry.dist) == ("kv.block_size", 32, "acme-old-hooks")
    assert says(heard, "hook core_adjust", "use core_configure").filename == str(tmp_path / "acme_old_hooks.py")


def test_a_plugin_for_both_versions_is_called_once(plugin, heard):
    both = OLD_HOOK + "\n@hookimpl\ndef core_configure(config):\n    return []\n"
    hooks = Hooks(plugin(both), renamed=HOOK)
    assert hooks.configure({"size": 32}, {}) == []
    says(heard, "hook core_adjust")


def test_a_hook_that_is_gone_is_named(plugin):
    hooks = Hooks(plugin(OLD_HOOK.replace("core_adjust", "core_judge")), renamed=HOOK)
    (failure,) = hooks.failures
    assert failure.code == "CORE-P107"
    assert "hook core_judge was removed in core 0.0.1: use core_validate" in failure.reason


# -- the ends that were promised -----------------------------------------------------------------------------------


def promises(source: str) -> Iterator[str]:
    """Yield the version of every shim in a source text."""
    for node in ast.walk(ast.parse(source)):
        for keyword in node.keywords if isinstance(node, ast.Call) else ():
            if keyword.arg == "removed_in" and not isinstance(keyword.value, ast.Name):
                yield ast.literal_eval(keyword.value)


def overdue(source: str, version: str) -> list[str]:
    return [one for one in promises(source) if Version(Version(version).base_version) >= Version(one)]


def test_overdue_shims_are_found():
    source = "x = {'a': Renamed(new='b', removed_in='0.3')}\n@renamed_keyword('a', 'b', removed_in='1.0')\ndef f(): ..."
    assert sorted(promises(source)) == ["0.3", "1.0"]
    assert overdue(source, "0.2.9") == [] and overdue(source, "0.3.0") == ["0.3"]
    assert overdue(source, "0.3.0.dev4") == ["0.3"] and sorted(overdue(source, "1.2")) == ["0.3", "1.0"]


def test_no_shim_has_outlived_its_version():
    """A failure here means: take the shim out, and what it stands for."""
    files = [*ROOT.glob("core/**/*.py"), *ROOT.glob("plugins/*/*/src/**/*.py")]
    assert len(files) > 300
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    late = {name: overdue(text, __version__) for name, text in texts.items() if "removed_in" in text}
    assert "core/api/deprecation.py" in late
    assert {name: versions for name, versions in late.items() if versions} == {}
