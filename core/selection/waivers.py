"""Waivers: problems of a configuration that a plugin takes on, with a reason that is shown."""

from __future__ import annotations

from collections.abc import Iterable

from core.api.patches import Problem
from core.plugins.hooks import Hooks


def settle(hooks: Hooks, problems: Iterable[Problem]) -> tuple[list[Problem], list[Problem]]:
    """Return what is still an error after every plugin was asked, and what became (or was) a warning."""
    errors: list[Problem] = []
    warnings: list[Problem] = []
    for problem in problems:
        answer = hooks.waive(problem) if problem.level == "error" else None
        if answer is not None:
            waiver, entry = answer
            text = f"{problem.message} Waived by {entry.name} ({entry.owner}): {waiver.reason}"
            warnings.append(Problem(level="warning", code=problem.code, message=text))
        else:
            (errors if problem.level == "error" else warnings).append(problem)
    return errors, warnings
