"""Descriptors are checked when they are made, are frozen, survive JSON, and cost next to nothing to import."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core.api as api
from core.api.descriptors import DESCRIPTORS
from core.api.record import EMPTY, Between, Mapping, Record


class Inner(Record):
    size: int = 1


class Sample(Record):
    kind: ClassVar[str] = "sample"

    name: str
    count: Annotated[int, Between(0, 9)] = 3
    ratio: float = 0.5
    on: bool = False
    mode: Literal["a", "b", 1] = "a"
    path: str | None = None
    order: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    sizes: frozenset[int] | None = None
    rules: Mapping[str, Inner] = EMPTY


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"order": ["x", "y"]}, ("order", ("x", "y"))),
        ({"names": {"x"}}, ("names", frozenset({"x"}))),
        ({"names": ["x", "x"]}, ("names", frozenset({"x"}))),
        ({"sizes": [64]}, ("sizes", frozenset({64}))),
        ({"rules": {"d": {"size": 4}}}, ("rules", {"d": Inner(size=4)})),
        ({"path": None}, ("path", None)),
        ({"mode": 1}, ("mode", 1)),
    ],
)
def test_values_take_the_form_of_their_annotation(fields, expected):
    assert getattr(Sample(name="n", **fields), expected[0]) == expected[1]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": 3}, "Sample: name: 3 is a int, not a str"),
        ({"count": 10}, "count: 10 is not between 0 and 9"),
        ({"count": True}, "count: True is a bool, not a int"),
        ({"on": 1}, "on: 1 is a int, not a bool"),
        ({"mode": "c"}, "mode: 'c' is none of 'a', 'b', 1"),
        ({"mode": True}, "mode: True is none of"),
        ({"path": 3}, "path: 3 is a int, not a str"),
        ({"order": "abc"}, "order: 'abc' is a str, not a tuple"),
        ({"names": {"x": 1}}, "names: {'x': 1} is a dict, not a frozenset"),
        ({"sizes": ["64"]}, "sizes: '64' is a str, not a int"),
        ({"rules": [1]}, "rules: [1] is a list, not a Mapping"),
        ({"rules": {"d": {"size": "x"}}}, "rules: Inner: size: 'x' is a str, not a int"),
        ({"count": -1, "on": "no"}, "count: -1 is not between 0 and 9; on: 'no' is a str, not a bool"),
    ],
)
def test_wrong_values_are_all_named(fields, text):
    with pytest.raises(ValueError) as caught:
        Sample(**{"name": "n", **fields})
    assert text in str(caught.value)


def test_missing_and_unknown_fields_are_named():
    with pytest.raises(TypeError, match="Sample lacks name"):
        Sample()
    with pytest.raises(TypeError, match="Sample has no field colour"):
        Sample(name="n", colour="red")


def test_a_record_is_frozen_and_its_defaults_are_nobodys_to_change():
    one = Sample(name="n", rules={"d": Inner()})
    for change in (lambda: setattr(one, "name", "m"), lambda: delattr(one, "name")):
        with pytest.raises(AttributeError, match="frozen"):
            change()
    given_rules = {"d": Inner()}
    two = Sample(name="n", rules=given_rules)
    given_rules.clear()
    assert two == one and Sample(name="n").rules == {}
    assert one.kind == "sample" and "kind" not in one.to_dict()


def test_equality_hashing_copies_and_text():
    one = Sample(name="n", order=["a"])
    assert one == Sample(name="n", order=("a",)) and one != one.replace(count=4) and one != Inner()
    assert hash(Inner(size=2)) == hash(Inner(size=2))
    assert one.replace(count=4).count == 4 and one.count == 3
    assert copy.deepcopy(one) == one and pickle.loads(pickle.dumps(one)) == one
    assert repr(Inner(size=2)) == "Inner(size=2)"
    with pytest.raises(ValueError, match="count"):
        one.replace(count=99)


_NAMES = st.text(max_size=5)


@given(
    st.builds(
        lambda **fields: Sample(**fields),
        name=_NAMES,
        count=st.integers(0, 9),
        ratio=st.floats(allow_nan=False),
        path=st.none() | _NAMES,
        order=st.lists(_NAMES),
        names=st.frozensets(_NAMES),
        sizes=st.none() | st.frozensets(st.integers()),
        rules=st.dictionaries(_NAMES, st.builds(lambda size: Inner(size=size), st.integers()), max_size=3),
    )
)
def test_a_record_survives_json(record):
    assert Sample(**json.loads(json.dumps(record.to_dict()))) == record


def test_every_descriptor_is_a_record_that_names_its_group():
    for group, kind in DESCRIPTORS.items():
        assert issubclass(kind, Record) and kind.group == group


def in_a_fresh_interpreter(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_every_public_name_is_there_and_comes_from_its_module():
    assert len(set(api.__all__)) == len(api.__all__)
    for name in api.__all__:
        assert getattr(api, name) is not None
    assert set(api.__all__) <= set(dir(api))
    listed = {name for names in api._NAMES.values() for name in names.split()}
    assert listed == set(api.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = api.Nothing


@pytest.mark.parametrize(
    "code", ["import core.api", "from core.api import PlatformSpec, DimRule, KernelSpec, hookimpl"]
)
def test_neither_the_interface_nor_a_descriptor_imports_pydantic(code):
    assert in_a_fresh_interpreter(
        f"import sys; {code}; print([n for n in ('pydantic', 'numpy') if n in sys.modules])"
    ) == ["[]"]


def test_no_plugin_of_this_repository_imports_pydantic_for_its_manifest():
    code = (
        "import sys\nfrom core.plugins.catalog import Catalogue\n"
        "mine = [one for one in Catalogue.scan().every() if one.dist.startswith('core-plugin-')]\n"
        "for one in mine: one.load()\n"
        "print(len(mine) > 20, 'pydantic' in sys.modules)"
    )
    assert in_a_fresh_interpreter(code) == ["True", "False"]
