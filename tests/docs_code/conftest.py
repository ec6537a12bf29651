"""The environment of a plugin's author."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def environment(tmp_path_factory, fresh_environment, wheels):
    """What a plugin's author has: core and its plugins, none of the examples."""
    made = fresh_environment.create(tmp_path_factory.mktemp("guide") / "environment")
    made.install([wheel for project, wheel in wheels.items() if "examples" not in project.relative_to(ROOT).parts])
    return made
