"""From a forward pass to a program: recorded, compared with recordings of few tokens, fused, and given its memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core_plugin_cpu.native.arena import Need, lay_out, reserve
from core_plugin_cpu.native.checks import CHECKS
from core_plugin_cpu.native.compare import Compared, compare
from core_plugin_cpu.native.fusion import fuse
from core_plugin_cpu.native.partial import NotReplayableError, refuse_partial
from core_plugin_cpu.native.program import Inputs, Program
from core_plugin_cpu.native.recording import Recorder, recording
from core_plugin_cpu.native.uses import Call, Homes, Item, TorchCall, begin, natives, sizes_of

FEW = (3, 2)
"""Tokens of the recordings with which one that torch takes part in is compared. One token is left out: torch then takes
copies for views, and dimensions of tokens for others."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A forward pass over inputs of a number of tokens.

    Attributes:
        keep: What it reads and nothing else keeps alive.
    """

    work: Callable[[], Tensor]
    inputs: Inputs
    keep: Any = None


def record(work: Callable[[], Tensor], *inputs: Any, run: bool = True) -> tuple[Program, Tensor]:
    """Return the native calls of `work` as a program, with the tensor that a replay fills anew.

    Args:
        inputs: What the work reads and nothing else keeps alive.
        run: Whether the calls are made while they are recorded; if not, what they write holds anything until a replay.

    Raises:
        NotReplayableError: The work computes with torch too.
    """
    found = Recorder(running=run)
    out = _done(work, found)
    return _program(found, out, (work, *inputs), None)


def record_step(trial: Callable[[int], Trial], size: int) -> tuple[Program, Tensor]:
    """Return the program of steps of up to `size` tokens, and its result for so many.

    Args:
        trial: Returns the forward pass over a number of tokens.
        size: A prime number that is no size of the model, so that what depends on the tokens can be told by it.

    Raises:
        NotReplayableError: What is recorded cannot be repeated for other steps.
    """
    whole = trial(size)
    found = Recorder(running=False, step=whole.inputs, plain=True)
    try:
        return _program(found, _done(whole.work, found), (whole,), whole.inputs)
    except NotReplayableError:
        if found.refusal is None:
            raise
    few = trial(FEW[-1])
    # What layers make when they are first called, and keep, is made by this: while a step is recorded, nothing is.
    with torch.inference_mode():
        few.work()
    found = Recorder(running=False, step=whole.inputs)
    out = _done(whole.work, found)
    compared = compare([(found, out), *(_again(trial(tokens), found) for tokens in FEW)])
    return _program(found, out, (whole,), whole.inputs, compared)


def _again(trial: Trial, like: Recorder) -> tuple[Recorder, Tensor]:
    found = Recorder(running=False, step=trial.inputs, like=like)
    out = _done(trial.work, found)
    return found, out


def _done(work: Callable[[], Tensor], found: Recorder) -> Tensor:
    """Do the work; what cannot be recorded is told as that, whatever the work made of it."""
    with recording(found):
        try:
            out = work()
        except Exception as error:
            if found.refusal is None:
                raise
            raise found.refusal from error
    if found.refusal is not None:
        raise found.refusal
    return out


def _program(
    found: Recorder, out: Tensor, keep: Sequence[Any], step: Inputs | None, compared: Compared | None = None
) -> tuple[Program, Tensor]:
    once = _checked_once(found.items)
    if step is not None:
        refuse_partial(once, Homes(once, sizes_of(found.made)), step.size, step.places)
    private = sizes_of(one for one in found.made if begin(one) != begin(out))
    fused, smaller = fuse(once, Homes(once, private))
    homes = Homes(fused, {**private, **smaller})
    calls, memory, moved = _move(fused, homes)
    cuts = [] if compared is None else compared.cuts(fused, homes, memory, moved, out)
    return Program(calls, [memory, *found.constants, *found.held, *keep, out], step, cuts), out


def _checked_once(items: list[Item]) -> list[Item]:
    """Return the items with the first of several equal checks: nothing of what they look at changes in between."""
    seen: set[Call] = set()
    kept: list[Item] = []
    for item in items:
        if isinstance(item, TorchCall) or item[0] not in CHECKS:
            kept.append(item)
        elif item not in seen:
            kept.append(item)
            seen.add(item)
    return kept


def _move(items: list[Item], homes: Homes) -> tuple[list[Call], Tensor, Mapping[int, int]]:
    """Move what only the items use into one memory.

    Returns:
        The native calls, that memory, and where memory that began at an address is in it.
    """
    used = [home for home in homes.all if home.lasting]
    spans = [sorted(home.calls()) for home in used]
    offsets, total = lay_out(Need(home.size, span[0], span[-1]) for home, span in zip(used, spans))
    memory = reserve(total)
    base = memory.data_ptr()
    words = [None if isinstance(one, TorchCall) else np.frombuffer(one[1], dtype=np.int64).copy() for one in items]
    for home, offset in zip(used, offsets):
        for index, place in home.uses:
            arguments = words[index]
            if arguments is not None:
                arguments[place] += base + offset - home.begin
    entries = [entry for entry, _ in natives(items)]
    calls = [(entry, one.tobytes()) for entry, one in zip(entries, (one for one in words if one is not None))]
    return calls, memory, {home.begin: offset for home, offset in zip(used, offsets)}
