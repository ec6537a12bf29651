"""Generated inputs: hypothesis draws them and, where a check fails, looks for the smallest that still fails."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from core_testing.conformance.outcome import Unavailable

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

EXAMPLES = 30


def need_hypothesis() -> None:
    """Raise `Unavailable` where hypothesis is not installed."""
    if find_spec("hypothesis") is None:
        raise Unavailable("hypothesis, which generates the inputs, is not installed: pip install hypothesis")


def for_all(inputs: SearchStrategy[Any], check: Callable[[Any], None], *, examples: int = EXAMPLES) -> None:
    """Run `check` on drawn inputs, the same ones in every run; what it raises for the smallest input is raised."""
    from hypothesis import HealthCheck, Phase, given, settings

    quiet = settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )

    @quiet
    @given(inputs)
    def run(drawn: Any) -> None:
        check(drawn)

    run()
