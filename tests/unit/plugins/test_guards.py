"""A hook module that guards and cannot be used stops the start; one that only observes is left out with a warning."""

from __future__ import annotations

import pytest

from core.api.errors import PluginError
from core.config.resolved import Options
from core.selection.resolver import resolve

GONE = "import a_library_nobody_has\nfrom core.api import hookimpl\n"


@pytest.fixture
def start(site):
    site.install_world()

    def run(source, *disabled, **select):
        site.install("acme-hooks", {"core.plugins": {"house": "house_mod"}}, {"house_mod": source} if source else {})
        return resolve(Options.model_validate({"select": select}), catalogue=site.catalogue(*disabled))

    return run


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (GONE + "@hookimpl\ndef core_request(request): ...\n", "it may guard (core_request)"),
        (GONE + "@hookimpl\ndef core_validate(config): ...\n", "it may guard (core_validate)"),
        (GONE + "from house_inner import core_request as core_request\n", "it may guard (core_request)"),
        (GONE + "from house_inner import *\n", "it may guard (whatever it imports with *)"),
        ("def core_request(request:\n", "it may guard (core_request)"),
        ("", "it may guard (its source is not there)"),
        ("from core.api import hookimpl\n@hookimpl\ndef core_request(reqest): ...\n", "CORE-P107"),
    ],
)
def test_a_guard_that_cannot_be_used_stops_the_start(start, source, told):
    with pytest.raises(PluginError) as caught:
        start(source)
    assert caught.value.code == "CORE-P163"
    for part in ("hook plugin 'house' (acme-hooks 1.0) cannot be used", told):
        assert part in caught.value.message
    assert "--disable-plugin house@acme-hooks" in caught.value.hint


def test_the_user_may_start_without_it(start):
    assert not start(GONE + "@hookimpl\ndef core_request(request): ...\n", "house@acme-hooks").config.plan.hooks


OBSERVER = GONE + "@hookimpl\ndef core_engine_event(event): ...\n"


def test_an_observer_is_left_out_with_a_warning(start):
    (warning,) = start(OBSERVER).warnings
    assert warning.code == "CORE-P103" and "a_library_nobody_has" in warning.message


def test_with_strict_nothing_is_left_out(start):
    with pytest.raises(PluginError, match=r"CORE-P163 .*with --strict nothing is left out: CORE-P103"):
        start(OBSERVER, strict=True)
