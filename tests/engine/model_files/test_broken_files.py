"""Checkpoints with a damaged file: served, or refused in one line with file and key, at once and in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COUNT = 400
SECONDS, GROWTH = 2.0, 200 * 2**20

sys.path.insert(0, str(HERE))
from checkpoints import ENCODERS, FORMATS  # noqa: E402

SOME, FEW = 40, 20
EXHAUSTIVE = [pytest.param(form, COUNT, marks=pytest.mark.exhaustive) for form in (*FORMATS, *ENCODERS)]


@pytest.mark.parametrize(
    ("form", "count"), [*((form, SOME) for form in FORMATS), (",".join(ENCODERS), FEW), *EXHAUSTIVE]
)
def test_a_damaged_checkpoint_is_served_or_refused_in_one_line(form, count, tmp_path):
    command = [sys.executable, str(HERE / "judge.py"), form, str(tmp_path), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    judged = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(judged) == count * len(form.split(","))
    assert [one for one in judged if one["fault"]] == []
    assert [one for one in judged if one["seconds"] > SECONDS] == []
    assert sum(one["grown"] for one in judged) < GROWTH
    refused = [one for one in judged if one["error"]]
    assert len(refused) > len(judged) / 2
    assert [one for one in refused if not _is_told(one, str(tmp_path / "damaged"))] == []


def _is_told(one, folder):
    """Whether the error is one line of core's about a checkpoint that names the file, and the key that was changed."""
    text = one["error"]
    return (
        text.startswith(("CORE-M", "CORE-P203 "))
        and "\n" not in text
        and folder in text
        and (one["file"] != "config.json" or _names_key(one["key"], text))
    )


def _names_key(key, text):
    return key in text or "'quantization_config'" in text or any(word in text for word in _TOLD_AS.get(key, _TENSOR))


_TENSOR = ("the checkpoint tensor '", "more weights than the", "the model has no place for ")
_TOLD_AS = {
    "attention_bias": [".bias"],
    "mlp_bias": [".bias"],
    "norm_bias": ["norm.bias"],
    "hidden_act": ["activation '"],
    "hidden_activation": ["activation '"],
    "rope_type": ["rope_parameters"],
    "ignore": ["lm_head.weight_scale"],
}
"""Words for what a key makes of the model, where an error names that."""
