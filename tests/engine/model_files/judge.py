"""Serve a damaged checkpoint after the other and print, as a line of JSON each, what became of it.

Usage: judge.py FORMAT[,FORMAT...] FOLDER COUNT. The process limits its own memory, so that nothing here can take the
machine's.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from checkpoints import write
from mutations import Mutation, mutations

from core import LLM, SamplingParams
from core.api import CoreError, RequestError

ROOM = 2 * 2**30
"""Address space beyond that of a start that went well."""


def serve(path: Path) -> str:
    """Start an engine in this process and use it for a short prompt; return the error's text if it is one of core's."""
    options: Any = {"num_blocks": 9, "block_size": 16, "threads": 1, "dtype": "float32", "max_num_seqs": 2}
    try:
        with LLM(str(path), **options) as llm:
            if llm.config.decodes:
                llm.generate([{"prompt_token_ids": [5, 6, 7]}], SamplingParams(max_tokens=2, ignore_eos=True))
            else:
                llm.encode([{"prompt_token_ids": [5, 6, 7]}])
    except CoreError as error:
        return str(error)
    except RequestError:  # a context of two tokens has no room for the prompt
        return ""
    return ""


def judge(mutation: Mutation, sound: Path, folder: Path) -> dict[str, Any]:
    """Return what became of a mutation: error, processor seconds, and how many bytes the process's peak grew by."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    source = sound if sound.is_dir() else sound.parent
    for file in source.iterdir():
        if file.name == mutation.file:
            (folder / file.name).write_bytes(mutation.content)
        else:
            os.link(file, folder / file.name)
    path = folder if sound.is_dir() else folder / sound.name
    fault, begun, peak = "", time.process_time(), _peak()
    try:
        error = serve(path)
    except Exception as failure:  # nothing but a CoreError may come: the test says what did
        error, fault = "", f"{type(failure).__name__}: {failure}"
    return {
        "label": mutation.label,
        "key": mutation.key,
        "file": mutation.file,
        "error": error,
        "fault": fault,
        "seconds": time.process_time() - begun,
        "grown": _peak() - peak,
    }


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limit() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))


def main(forms: list[str], folder: Path, count: int) -> None:
    """Judge `count` mutations of a checkpoint of each of these formats."""
    logging.disable(logging.CRITICAL)
    sound = {form: write(form, folder / form) for form in forms}
    for form in forms * 2:  # what is imported and allocated once is no mutation's
        if error := serve(sound[form]):
            raise SystemExit(f"the sound checkpoint of {form} is refused: {error}")
    _limit()
    for form in forms:
        for mutation in mutations(form, sound[form], count):
            print(json.dumps(judge(mutation, sound[form], folder / "damaged")), flush=True)


if __name__ == "__main__":
    main(sys.argv[1].split(","), Path(sys.argv[2]), int(sys.argv[3]))
