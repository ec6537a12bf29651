"""The table of sampling parameters: Python's parameters, the bodies, the web page and the pages of docs follow it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from core_plugin_openai.protocol import ChatBody, SharedFields
from pydantic import ValidationError

from core.api import SAMPLING_FIELDS, RequestError, SamplingField
from core.api.bodies import BodyPart, SamplingBody
from core.api.sampling_params import SamplingParams
from core.api.sampling_table import FROM_MODEL, fields_of

ROOT = Path(__file__).parents[3]
OF_PYTHON = {"bad_token_ids", "detokenize", "extra_args", "grammar", "thinking"}
KINDS = {"number": float, "integer": int, "boolean": bool}
NUMBERS = [one for one in SAMPLING_FIELDS.values() if one.type in ("number", "integer")]


def test_the_parameters_of_python_are_those_of_the_table():
    found = {one.name: one for one in msgspec.structs.fields(SamplingParams)}
    assert found.keys() == SAMPLING_FIELDS.keys() | OF_PYTHON and not SAMPLING_FIELDS.keys() & OF_PYTHON
    plain = SamplingParams()
    for name, field in SAMPLING_FIELDS.items():
        assert (getattr(plain, name) or None) == (field.default or None), name
        if field.simple:
            kinds = set(get_args(found[name].type)) or {found[name].type}
            optional = {type(None)} if field.optional or field.default is None else set()
            assert kinds == {KINDS[field.type]} | optional, name


@pytest.mark.parametrize("field", NUMBERS, ids=lambda one: one.name)
def test_a_number_is_held_to_its_range(field):
    for end in (field.low, field.high):
        step = 2 if field.type == "integer" else 0.001
        beyond = end - step if end is field.low else end + step
        with pytest.raises(RequestError, match=rf"{field.name} must be .*, got {re.escape(repr(beyond))}") as refusal:
            SamplingParams(**{field.name: beyond})
        assert refusal.value.param == field.name
        if not (field.above_low and end is field.low) and field.name != "min_tokens":
            SamplingParams(**{field.name: end})
    for wrong in ("1", True, float("nan"), [1]):
        with pytest.raises(
            RequestError, match=f"{field.name} must be {'an int' if field.type == 'integer' else 'a fi'}"
        ):
            SamplingParams(**{field.name: wrong})
    if field.above_low:
        with pytest.raises(RequestError, match=rf"in \({field.low:g}, "):
            SamplingParams(**{field.name: field.low})


def test_rows_of_operations_are_in_the_order_of_their_kernels():
    assert [one.name for one in fields_of("draw")] == ["temperature", "top_k", "top_p", "min_p"]
    strengths = ["repetition_penalty", "frequency_penalty", "presence_penalty"]
    assert [one.name for one in fields_of("penalize")] == strengths
    assert set(FROM_MODEL) == {one.name for one in fields_of("draw")} | {"repetition_penalty"}


def test_a_body_takes_what_it_names_of_the_table():
    class Options(BodyPart, SamplingBody, fields=("temperature", "stop", "logit_bias")):
        own: int | None = None

    class More(Options, fields=("n",)):
        pass

    body = More.model_validate({"temperature": 2, "stop": "x", "own": 1, "later": 3, "n": None, "top_p": 0.5})
    assert body.sampling() == {"temperature": 2.0, "stop": "x", "logit_bias": None, "n": None}
    assert body.sampling({"later": 3, "own": 1}, {"later", "own", "unsaid"})["later"] == 3
    assert body.sampling({"own": 1}, {"own"}).keys() == {"temperature", "stop", "logit_bias", "n"}
    assert Options.sampling_names == ("temperature", "stop", "logit_bias") and "n" not in Options.model_fields
    for wrong in ({"temperature": "1"}, {"stop": ["x"] * 17}, {"logit_bias": {"a": 1}}, {"n": 1.5}):
        with pytest.raises(ValidationError):
            More.model_validate(wrong)
    with pytest.raises(KeyError, match="nothing"):

        class Wrong(SamplingBody, fields=("nothing",)):
            pass


@pytest.mark.parametrize(
    ("type", "good", "bad"),
    [
        ("boolean", [True, False], [1, None, "true"]),
        ("integer", [-5, 10**30], [1.0, True, None]),
        ("number", [1], ["1"]),
    ],
)
def test_values_of_a_plugins_field(type, good, bad):
    field = SamplingField(name="x", type=type, meaning="x", default=False if type == "boolean" else 0)
    assert [field.fault(one) for one in good] == [None] * len(good)
    assert all(field.fault(one).startswith("x must be ") for one in bad)


# -- pages -------------------------------------------------------------------------------------------------------------


def test_the_page_of_chat_completions_has_the_bounds_of_the_table():
    page = (ROOT / "docs/http-api.md").read_text(encoding="utf-8").partition("## Fields of generation requests")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| honoured \| ?(.*?) ?\|$", page, re.MULTILINE))
    assert {name for name in ChatBody.sampling_names if name not in rows} == set()
    bounds = {name: int(most[1]) for name, text in rows.items() if (most := re.search(r"at most (\d+)", text))}
    for name in bounds.keys() & SAMPLING_FIELDS.keys():
        field = SAMPLING_FIELDS[name]
        assert bounds[name] == (field.most or field.high), name


def test_the_page_of_responses_names_every_parameter():
    page = (ROOT / "docs/responses.md").read_text(encoding="utf-8")
    told = {name for row in re.findall(r"^\|(.*?)\|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert set(SharedFields.sampling_names) <= told


def test_the_web_page_offers_parameters_of_the_table_within_their_ranges():
    source = (ROOT / "plugins/routes/webui/web/src/chat/sampling.mjs").read_text(encoding="utf-8")
    rows = re.findall(r"^  (\w+): \{ (.*) \},$", source.partition("FIELDS = {")[2].partition("};")[0], re.MULTILINE)
    assert len(rows) > 5
    for name, row in rows:
        field, told = SAMPLING_FIELDS[name], json.loads("{" + re.sub(r"(\w+):", r'"\1":', row) + "}")
        assert field.low <= told.get("min", field.low) and told.get("max", field.high) <= field.high
        assert field.type == "number" or told["step"] == 1
