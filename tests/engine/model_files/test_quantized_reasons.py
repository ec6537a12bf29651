"""`core plugins why` has, for the form of each method, the product that multiplies as stored, or each one's reason."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from core.cli.main import main

sys.path.insert(0, str(Path(__file__).parent))
from quantized import FORMS, ROUNDED, plain, quantized, some

OPENING = {"reference", "cpu_dense_linear", "cpu_dense_lookup"}
"""Products that open weights to the compute dtype."""


def explained(capsys, *words):
    """Form -> the products that were looked at, of `why`."""
    assert main(["plugins", "why", "--json", *words]) == 0
    shown = json.loads(capsys.readouterr().out)["selections"]
    return {one["subject"].split()[1].rstrip(","): one for one in shown if one["subject"].startswith("weights ")}


@pytest.mark.covers("QUANT-02")
@pytest.mark.parametrize("name", some([*FORMS, *ROUNDED]))
def test_a_form_has_a_product_or_the_reasons_of_all(name, tmp_path, capsys):
    if name in ROUNDED:
        found = explained(capsys, str(plain(tmp_path / "model")), "--quantization", name)
    else:
        found = explained(capsys, str(quantized(name, tmp_path / "model")))
    codes = [form for form in found if form != "plain"]
    assert codes
    for form in codes:
        rows = found[form]["candidates"]
        assert len([row for row in rows if row["state"] == "chosen"]) == 2  # `linear` and `lookup`
        stored = [row for row in rows if row["name"] not in OPENING]
        assert stored
        if any(row["state"] == "chosen" for row in stored):
            continue
        for row in stored:
            assert row["state"] != "ok" and row["reasons"] and all(row["reasons"]), row
