"""The comparison of answers with float32 (`benchmarks/accuracy`): its figures, and the report's table of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def logs(*probabilities):
    return np.log(np.array(probabilities))


def told(*probabilities, of=2):
    """The first `of` tokens of a distribution, as an engine tells them."""
    return dict(enumerate(logs(*probabilities)[:of].tolist()))


def test_divergence_is_that_of_what_is_told_and_the_rest():
    from benchmarks.accuracy.figures import divergence

    p, q = (0.5, 0.3, 0.1, 0.1), (0.4, 0.3, 0.2, 0.1)
    assert divergence(logs(*p), told(*p)) == pytest.approx(0, abs=1e-9)
    assert divergence(logs(*p), told(*q, of=4)) == pytest.approx(np.sum(np.exp(logs(*p)) * (logs(*p) - logs(*q))))
    lumped = 0.5 * np.log(0.5 / 0.4) + 0.2 * np.log(0.2 / 0.3)
    assert divergence(logs(*p), told(*q)) == pytest.approx(lumped)


def test_figures_are_means_over_places():
    from benchmarks.accuracy.figures import Text, compare

    p, q = (0.5, 0.3, 0.2), (0.3, 0.5, 0.2)
    figures = compare([logs(*p), logs(*p)], [told(*p), told(*q)])
    assert (figures.agreement, figures.places) == (0.5, 2)
    assert figures.divergence == pytest.approx(0.5 * (0.5 - 0.3) * np.log(0.5 / 0.3))
    assert list(Text([7, 8, 9], 1).places) == [1, 2]
    with pytest.raises(ValueError, match="argument"):
        compare([logs(*p)], [])


def test_the_report_shows_what_was_kept(tmp_path):
    from benchmarks.compare import report
    from benchmarks.compare.store import Store

    store = Store(tmp_path)
    assert report._accuracy(store) == ""
    ways = {"tokens": {"divergence": 0.00123, "agreement": 0.987, "places": 7}}
    ways["prompt"] = {"divergence": 0.00456, "agreement": 0.5, "places": 7}
    store.put("core-q4_1", "accuracy", 1, {"data": ways})
    store.put("llama-q4_1", "accuracy", 1, {"error": "no server"})
    shown = report._accuracy(store)
    assert "| core-q4_1 | 0.00123 | 98.7% | 0.00456 | 50.0% |" in shown
    assert "7 tokens" in shown
    assert "llama" not in shown
