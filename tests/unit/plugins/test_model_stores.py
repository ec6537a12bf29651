"""Model sources that fetch, keep and remove models: what they are told, and what is made of what they say."""

from __future__ import annotations

import json

import pytest

from core.api.errors import CoreError
from core.config.resolved import Options
from core.plugins.hooks import Hooks
from core.selection.resolver import resolve
from core.selection.select import Selector
from core.selection.stores import access_of, kept_models

TOKEN = "hf_Secret-of.the_User"
MANIFEST = """
from core.api import ModelSourceSpec
STORE = ModelSourceSpec(name="store", impl="store_impl:Store", api=1, summary="", aliases=("stored",))
"""
SOURCE = """
import json
from pathlib import Path
from core.api import CheckpointError, ModelFiles, StoredModel

HERE = Path(__file__).parent

class Store:
    def use(self, access):
        facts = {"token": access.token, "offline": access.offline, "folder": access.folder}
        (HERE / "told.json").write_text(json.dumps(facts))
        if access.progress is not None:
            access.progress(1, 2)
        USE

    def resolve(self, reference, *, revision=None):
        if reference != "stored":
            return None
        return ModelFiles(reference=reference, path=str(HERE / "world" / "demo.txt"), name="stored")

    def stored(self):
        return STORED

    def remove(self, model):
        REMOVE
        return model.num_bytes
"""


@pytest.fixture
def world(site):
    site.install_world()
    return site


def add(world, *, use="", stored="[StoredModel(reference='stored', path=str(HERE), num_bytes=7)]", remove=""):
    source = SOURCE.replace("USE", use or "pass").replace("STORED", stored).replace("REMOVE", remove or "pass")
    points = {"core.model_sources": {"store": "store_manifest:STORE"}}
    world.install("acme-store", points, {"store_manifest": MANIFEST, "store_impl": source})


def kept(world, hub=None):
    problems: list[CoreError] = []
    options = Options.model_validate({"hub": hub or {}})
    return list(kept_models(Selector(world.catalogue(), Hooks()), access_of(options.hub), problems.append)), problems


@pytest.mark.covers("CLI-05")
def test_a_source_is_told_how_it_may_reach_its_models(world):
    add(world)
    told: list[tuple[int, int]] = []
    hub = {"hf_token": TOKEN, "offline": True, "download_dir": "/srv"}
    options = Options.model_validate({"model": {"model": "stored"}, "hub": hub})
    resolution = resolve(options, catalogue=world.catalogue(), progress=lambda *counts: told.append(counts))
    assert resolution.config.files.name == "stored" and told == [(1, 2)]
    (file,) = world.root.rglob("told.json")
    assert json.loads(file.read_text()) == {"token": TOKEN, "offline": True, "folder": "/srv"}


def test_a_source_that_does_not_take_it_is_named(world):
    add(world, use="raise OSError('no folder')")
    with pytest.raises(CoreError, match=r"CORE-M101 .*store.*OSError: no folder"):
        resolve(Options.model_validate({"model": {"model": "stored"}}), catalogue=world.catalogue())


def test_what_is_kept_is_listed_and_removed(world):
    add(world)
    models, problems = kept(world)
    assert problems == []
    (mine,) = [one for one in models if one.entry.name == "store"]
    assert mine.model.reference == "stored" and mine.removable and mine.remove() == 7


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"stored": "['a path']"}, "gave a str, not a StoredModel"),
        ({"stored": "1 / 0"}, "stored() raised ZeroDivisionError"),
        ({"use": "raise KeyError('k')"}, "use() raised KeyError"),
    ],
)
def test_a_source_that_cannot_say_is_told_and_the_others_are_asked(world, parts, text):
    add(world, **parts)
    models, problems = kept(world)
    assert models == []
    assert (
        [one.code for one in problems] == ["CORE-P108"] and text in str(problems[0]) and "acme-store" in str(problems)
    )


def test_what_a_removal_raises_is_attributed(world):
    add(world, remove="raise PermissionError('not yours')")
    (mine,), _ = kept(world)
    with pytest.raises(CoreError, match=r"CORE-P108 .*'store' \(acme-store 1.0\): remove\(\) raised PermissionError"):
        mine.remove()


@pytest.mark.covers("CLI-05")
def test_the_token_is_shown_to_no_hook(world):
    body = "from core.api import hookimpl\n@hookimpl\ndef core_configure(config):\n"
    body += f"    assert {TOKEN!r} not in str(config), 'seen'\n    return []\n"
    world.install("acme-spy", {"core.plugins": {"spy": "spy_mod"}}, {"spy_mod": body})
    resolution = resolve(Options.model_validate({"hub": {"hf_token": TOKEN}}), catalogue=world.catalogue())
    assert resolution.config.options.hub.hf_token == TOKEN
    assert [one.name for one in resolution.config.plan.hooks] == ["spy"]
