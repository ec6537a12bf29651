"""Fresh interpreters: a request goes in as JSON, facts come back as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from core_testing.conformance.outcome import Failed
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.sources import uses_torch

TIMEOUT = 120.0
"""Seconds after which a child is ended."""

EACH = 5.0
"""Further seconds for each distribution that it looks at: they are imported in processes of their own."""


def ask(
    mode: str, request: Mapping[str, Any], variables: Mapping[str, str] | None = None, *, timeout: float = TIMEOUT
) -> dict[str, Any]:
    """Run `core_testing.conformance.tools.child` in a new interpreter.

    Args:
        mode: A function of the child.
        variables: Environment variables to set; `PYTHONPATH` is put in front.
        timeout: Seconds after which it is ended.

    Raises:
        Failed: The interpreter died or took too long; with its last line.
    """
    done = run_child(mode, request, variables or {}, timeout)
    answer = done.stdout.strip().rpartition("\n")[2]
    if done.returncode != 0 or not answer:
        last = done.stderr.strip().rpartition("\n")[2]
        raise Failed(f"a fresh interpreter ended with status {done.returncode}: {last}")
    facts: dict[str, Any] = json.loads(answer)
    return facts


def run_child(
    mode: str, request: Mapping[str, Any], variables: Mapping[str, str], timeout: float = TIMEOUT
) -> subprocess.CompletedProcess[str]:
    """Run a function of the child in a new interpreter, however it ends. Raises `Failed` when it takes too long."""
    # -P: a folder named `core` in the working directory must not take the place of the installed package.
    command = [sys.executable, "-P", "-m", "core_testing.conformance.tools.child", mode]
    environment = child_environment(variables)
    try:
        return subprocess.run(
            command, input=json.dumps(request), env=environment, capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"a fresh interpreter was still busy with it after {timeout:g} s") from error


def child_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment and import path with some variables set; `PYTHONPATH` is put in front."""
    path = [*variables.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    return {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONDONTWRITEBYTECODE": "",
    }


def facts_of(subject: Subject, mode: str) -> dict[str, Any]:
    """Return what was found out about a plugin outside this process; all plugins of a run are looked at together."""
    facts = subject.shared.once((mode,), lambda: _look(subject, mode))
    if isinstance(facts, Failed):
        raise facts
    mine: dict[str, Any] = facts[subject.title]
    if "died" in mine:
        raise Failed(f"importing {subject.entry.value} alone: {mine['died']}")
    return mine


def _look(subject: Subject, mode: str) -> dict[str, Any] | Failed:
    entries = subject.shared.entries or [subject.entry]
    distributions = [
        {"entries": [astuple(entry) for entry in entries if entry.dist == dist], "torch": uses_torch(entries, dist)}
        for dist in sorted({entry.dist for entry in entries})
    ]
    try:
        return ask(mode, {"distributions": distributions}, timeout=TIMEOUT + EACH * len(distributions))
    except Failed as failure:
        return failure
