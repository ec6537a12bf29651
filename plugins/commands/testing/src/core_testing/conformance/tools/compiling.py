"""Hard grammars compiled in processes that have bounds, as core's own compilers have."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from core_plugin_structured.compiling.remote import NO_MEMORY

from core.api.descriptors import StructuredOutputSpec
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.interpreters import run_child
from core_testing.conformance.tools.options import some_options
from core_testing.conformance.tools.tokenizers import tokenizer_folder

MEMORY = 512 * 2**20
"""Bytes that a process may take for grammars beyond what it has at its start."""

_PATIENCE = 6
"""How many times the processor time a grammar may take in time: a machine that is busy fails nobody."""

_START_SECONDS = 60.0


def compile_apart(subject: Subject, grammars: Sequence[tuple[str, str, str]], seconds: float) -> Iterator[str]:
    """Compile grammars (kind, name, value) with the subject; yield for each what is wrong with how it ended, or "".

    A process serves until a grammar ends it, the next one goes on behind it. One that was refused more memory has
    refused the grammar.

    Args:
        seconds: Of processor time, for each.
    """
    left = list(grammars)
    while left:
        journal = subject.folder() / "journal"
        done = _series(subject, left, seconds, journal)
        told = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
        yield from told
        left = left[len(told) :]
        if left:
            yield _ending(done, seconds)
            del left[0]


def _series(
    subject: Subject, grammars: Sequence[tuple[str, str, str]], seconds: float, journal: Path
) -> subprocess.CompletedProcess[str]:
    journal.touch()
    request = {
        "impl": subject.descriptor.impl,
        "isolate": subject.spec(StructuredOutputSpec).isolate,
        "options": some_options(subject),
        "tokenizer": str(tokenizer_folder(subject)),
        "grammars": [[kind, value] for kind, _, value in grammars],
        "seconds": seconds,
        "patience": _PATIENCE * seconds,
        "memory": MEMORY,
        "journal": str(journal),
    }
    return run_child("compile", request, {}, _START_SECONDS + len(grammars) * _PATIENCE * seconds)


def _ending(done: subprocess.CompletedProcess[str], seconds: float) -> str:
    """Return what is wrong with how a process ended."""
    if done.returncode == -signal.SIGPROF:
        return f"it takes more than {seconds:g} s of processor time"
    if done.returncode == -signal.SIGALRM:
        return f"it was still busy after {_PATIENCE * seconds:g} s"
    if NO_MEMORY.search(done.stderr):
        return ""
    last = done.stderr.strip().rpartition("\n")[2]
    return f"the process that compiles it ended with status {done.returncode}: {last[:200]}"
