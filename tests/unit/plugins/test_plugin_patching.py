from __future__ import annotations

import pytest

from core.api.errors import ConfigError, PluginError
from core.api.patches import ConfigPatch
from core.config.resolved import Options
from core.plugins.hooks import Proposal
from core.selection.patching import apply_patches, user_set


def patch(path, value, dist="acme", strength="required"):
    from core.plugins.entry import Entry

    entry = Entry("core.plugins", f"{dist}-hooks", dist, "1.0", "x")
    return Proposal(entry, ConfigPatch(path=path, value=value, reason="the kernel wants it", strength=strength))


def run(options, *proposals):
    view = options.model_dump(mode="json")
    view["kv"]["block_size"] = view["kv"]["block_size"] or 16
    return apply_patches(options, view, proposals)


def test_a_patch_sets_a_value_and_tells_who_and_why():
    options, (applied,), notes = run(Options(), patch("kv.block_size", 128))
    assert options.kv.block_size == 128
    assert str(applied) == "kv.block_size 16 -> 128 by acme 1.0: the kernel wants it"
    assert not notes


def test_a_patch_to_what_already_is_does_nothing():
    options, applied, _ = run(Options(), patch("kv.block_size", 16))
    assert not applied and options == Options()


def test_the_users_value_is_immutable():
    with pytest.raises(ConfigError, match=r"kv\.block_size is set to 32, but 'acme-hooks'") as caught:
        run(Options.model_validate({"kv": {"block_size": 32}}), patch("kv.block_size", 128))
    assert caught.value.code == "CORE-P210"
    assert "--disable-plugin acme" in caught.value.hint


def test_advice_against_the_user_is_noted_and_skipped():
    given = Options.model_validate({"kv": {"block_size": 32}})
    options, applied, (note,) = run(given, patch("kv.block_size", 128, strength="advice"))
    assert options.kv.block_size == 32 and not applied
    assert "acme 1.0 advises 128" in note


def test_an_equal_wish_is_no_conflict_with_the_user():
    run(Options.model_validate({"kv": {"block_size": 32}}), patch("kv.block_size", 32))


def test_auto_leaves_the_choice_open():
    options = Options.model_validate({"model": {"dtype": "auto"}, "kv": {"block_size": None, "prefix_caching": True}})
    assert not user_set(options, "model.dtype") and not user_set(options, "kv.block_size")
    assert user_set(options, "kv.prefix_caching")
    assert run(options, patch("model.dtype", "float32"))[0].model.dtype == "float32"


def test_two_plugins_with_two_wishes_clash():
    with pytest.raises(ConfigError) as caught:
        run(Options(), patch("kv.block_size", 128), patch("kv.block_size", 64, "bolt"))
    assert caught.value.code == "CORE-P211"
    assert "'acme-hooks' (acme 1.0) to 128 and 'bolt-hooks' (bolt 1.0) to 64" in caught.value.message


def test_two_plugins_with_one_wish_agree():
    _, applied, _ = run(Options(), patch("kv.block_size", 128), patch("kv.block_size", 128, "bolt"))
    assert [one.owner for one in applied] == ["acme 1.0"]


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("kv.page_size", 1, "no such option"),
        ("cache.block_size", 1, "no such option"),
        ("kv", {}, "no such option"),
        ("kv.block_size", -1, "greater than or equal to 1"),
        ("kv.block_size", "many", "valid integer"),
        ("select.platform", "cpu", "decided before"),
        ("model.model", "m", "decided before"),
    ],
)
def test_an_unusable_patch_names_its_author(path, value, why):
    with pytest.raises(PluginError, match=why) as caught:
        run(Options(), patch(path, value))
    assert caught.value.code == "CORE-P212"
    assert "acme 1.0" in caught.value.message


def test_a_patch_keeps_what_the_user_set_marked_as_such():
    given = Options.model_validate({"kv": {"prefix_caching": False}})
    options, _, _ = run(given, patch("kv.block_size", 64))
    assert user_set(options, "kv.prefix_caching")
    assert (options.kv.prefix_caching, options.kv.block_size) == (False, 64)
