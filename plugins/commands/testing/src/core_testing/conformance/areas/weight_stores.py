"""Weight stores: what comes back is what was kept, under its own key, complete or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from core.api.errors import CoreError
from core.api.weights import KeptWeights, WeightStore
from core_testing.conformance.outcome import Failed, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.folders import fresh_folder
from core_testing.conformance.tools.interpreters import ask
from core_testing.conformance.tools.options import some_options
from core_testing.conformance.tools.tiny_engine import executor_of, expected, greedy, some_prompts, tiny_config

MODEL = "acme/kit"
_RUN = os.urandom(8).hex()
_ALIGNED = 64
_LARGE = 2**22
_DTYPES = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32)


def _apart(check: Callable[[Subject], None]) -> Callable[[Subject], None]:
    """Make a check where a store finds nothing of the user's, and leaves nothing."""

    @wraps(check)
    def inside(subject: Subject) -> None:
        with fresh_folder():
            check(subject)

    return inside


@_apart
def tensors_come_back(subject: Subject) -> None:
    """Names, shapes, dtypes and values are those that were kept, also of tensors without elements or dimensions."""
    store, tensors = _store(subject), {**_tensors(1), "none": torch.empty(0, 3), "one": torch.tensor(7.5)}
    _require_kept(store, "a", tensors)
    _require_equal(_opened(store, "a"), tensors)
    tensors = {"other": torch.arange(9.0)}
    _require_kept(store, "b", tensors)
    _require_equal(_opened(store, "b"), tensors)
    _require_equal(_opened(store, "a").keys() & {"other"}, set())


@_apart
def tensors_are_ordinary(subject: Subject) -> None:
    """They are contiguous, aligned, on the host; whoever writes to one changes nothing that is opened later."""
    store, tensors = _store(subject), _tensors(1)
    _require_kept(store, "a", tensors)
    for name, tensor in _opened(store, "a").items():
        require(tensor.device.type == "cpu" and tensor.is_contiguous(), f"{name} is no contiguous host tensor")
        at = tensor.data_ptr() % _ALIGNED
        require(not at, f"{name} lies {at} bytes behind a multiple of {_ALIGNED}")
        tensor.view(torch.uint8).fill_(3)
    _require_equal(_opened(store, "a"), tensors)


@_apart
def unknown_keys_are_none(subject: Subject) -> None:
    """A key that nothing was kept under is None, also in a place that nothing was ever kept in."""
    store = _store(subject)
    require(store.open(_key(store, "a")) is None, "open() of a key that was never kept gives something")
    require(not _own(store), "entries() has what was never kept")
    _require_kept(store, "a", _tensors(1))
    require(store.open(_key(store, "b")) is None, "open() gives something for another key than was kept")


@_apart
def the_first_one_stays(subject: Subject) -> None:
    """Tensors that are kept under a key are not replaced, nor torn, when that key is kept once more."""
    store, tensors = _store(subject), _tensors(1)
    _require_kept(store, "a", tensors)
    store.keep(_key(store, "a"), _tensors(2), {"model": MODEL}, lambda: True)
    _require_equal(_opened(store, "a"), tensors)


@_apart
def what_is_given_up_is_not_kept(subject: Subject) -> None:
    """Nothing is kept that `wanted` says no to, at once or on the way, nor where a tensor cannot be had."""
    store = _store(subject)
    for times in (0, 2):
        asked = iter([True] * times)
        kept = store.keep(_key(store, "a"), _large(), {"model": MODEL}, partial(next, asked, False))
        require(
            not kept and store.open(_key(store, "a")) is None,
            f"kept, although wanted() says no after {times} times yes",
        )
    with suppress(OSError):
        store.keep(_key(store, "a"), _Torn(_large()), {"model": MODEL}, lambda: True)
    require(store.open(_key(store, "a")) is None, "kept, although a tensor could not be had")
    require(not _own(store), "what was not kept is among the entries")
    _require_kept(store, "a", _tensors(1))
    _require_equal(_opened(store, "a"), _tensors(1))


@_apart
def entries_say_what_is_kept(subject: Subject) -> None:
    """Entries have key, model and size of everything that is kept, and of nothing that was removed."""
    store, tensors = _store(subject), _tensors(1)
    for name in ("a", "b"):
        _require_kept(store, name, tensors)
    entries = _own(store)
    require(set(entries) == {"a", "b"}, f"of two keys, entries() has {len(entries)}")
    least = sum(tensor.nbytes for tensor in tensors.values())
    for one in entries.values():
        require(one.model == MODEL, f"the model is called {one.model!r} instead of {MODEL!r}")
        require(one.num_bytes >= least, f"an entry of {least} bytes is said to take {one.num_bytes}")
    freed = store.remove(_key(store, "a"))
    require(freed >= least, f"remove() of {least} bytes says that {freed} are freed")
    require(set(_own(store)) == {"b"}, "what was removed is among the entries")
    require(store.open(_key(store, "a")) is None, "what was removed can be opened")
    require(store.remove(_key(store, "a")) == 0, "remove() of what is gone says that something was freed")


@_apart
def opened_tensors_outlive_the_entry(subject: Subject) -> None:
    """Tensors that are in use stay as they are when their entry is removed, or the store is gone."""
    store, tensors = _store(subject), _tensors(1)
    _require_kept(store, "a", tensors)
    found = _opened(store, "a")
    store.remove(_key(store, "a"))
    del store
    _require_equal(found, tensors)


@_apart
def it_outlives_its_process(subject: Subject) -> None:
    """Another object with the same options finds what this one kept."""
    options = some_options(subject)
    first, second = _load(subject, options), _load(subject, options)
    _require_kept(first, "a", _tensors(1))
    found = second.open(_key(first, "a"))
    require(found is not None, "another object with the same options does not find what was kept")
    _require_equal(found, _tensors(1))


def listing_needs_no_torch(subject: Subject) -> None:
    """`core ls` imports the implementation, and that does not bring torch."""
    facts = ask("imported", {"path": subject.descriptor.impl, "watch": ("torch",)})
    require("error" not in facts, f"importing {subject.descriptor.impl} failed: {facts.get('error')}")
    require(not facts["modules"], f"importing {subject.descriptor.impl} brings torch")


@_apart
def starts_give_the_same_tokens(subject: Subject) -> None:
    """An engine that keeps its weights and one that starts with them answer as transformers' model does."""
    prompts = some_prompts()[:2]
    due, config = expected(prompts, 4), tiny_config(subject)
    for what in ("keeps its weights", "starts with kept weights"):
        executor = executor_of(subject)
        try:
            executor.start()
            found = greedy(executor, config, prompts, 4)
        finally:
            executor.close()
        require(found == due, f"an engine that {what} answers {found} instead of {due}")


def _store(subject: Subject) -> WeightStore:
    return _load(subject, some_options(subject))


def _load(subject: Subject, options: Mapping[str, Any]) -> WeightStore:
    kind: Callable[..., WeightStore] = subject.load(subject.descriptor.impl)
    return kind(options) if subject.descriptor.options is not None else partial(kind)()


def _require_kept(store: WeightStore, name: str, tensors: Mapping[str, Tensor]) -> None:
    kept = store.keep(_key(store, name), tensors, {"model": MODEL}, lambda: True)
    require(kept is True, f"keep() of {len(tensors)} small tensors gives {kept!r} instead of True")


def _opened(store: WeightStore, name: str) -> Mapping[str, Tensor]:
    try:
        found = store.open(_key(store, name))
    except CoreError as error:
        raise Failed(f"open() of what was kept: {error}") from error
    if found is None:
        raise Failed("open() of what was kept gives None")
    return found


def _require_equal(found: Any, due: Any) -> None:
    if not isinstance(due, Mapping):
        require(found == due, f"tensors of another key are there: {found}")
        return
    require(set(found) == set(due), f"kept were {sorted(due)}, opened {sorted(found)}")
    for name, tensor in due.items():
        is_, should = ((tuple(one.shape), one.dtype) for one in (found[name], tensor))
        require(is_ == should, f"{name} is {is_} instead of {should}")
        same = torch.equal(*(one.reshape(-1).view(torch.uint8) for one in (found[name], tensor)))
        require(same, f"{name} has other values than were kept")


def _key(store: WeightStore, name: str) -> str:
    """Return a key that no other check has: stores of one user may share a place."""
    return hashlib.sha256(f"{id(store)} {_RUN} {name}".encode()).hexdigest()


def _own(store: WeightStore) -> dict[str, KeptWeights]:
    """Return the entries of the keys `a` and `b` of a check."""
    entries = list(store.entries())
    strange = [type(one).__name__ for one in entries if not isinstance(one, KeptWeights)]
    require(not strange, f"entries() gives {', '.join(strange)}")
    names = {_key(store, name): name for name in ("a", "b")}
    return {names[one.key]: one for one in entries if one.key in names}


def _tensors(seed: int) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 100, (5, 7), generator=rng)
    return {f"0:layers.{place}:{dtype}".replace("torch.", ""): numbers.to(dtype) for place, dtype in enumerate(_DTYPES)}


def _large() -> dict[str, Tensor]:
    return {str(number): torch.full((_LARGE,), number, dtype=torch.uint8) for number in range(4)}


class _Torn(dict[str, Tensor]):
    """Tensors of which one cannot be had when its turn comes, only its shape."""

    def __getitem__(self, name: str) -> Tensor:
        if name == "3":
            raise OSError("the device is gone")
        return super().__getitem__(name)


CHECKS = checks(
    tensors_come_back,
    tensors_are_ordinary,
    unknown_keys_are_none,
    the_first_one_stays,
    what_is_given_up_is_not_kept,
    entries_say_what_is_kept,
    opened_tensors_outlive_the_entry,
    it_outlives_its_process,
    listing_needs_no_torch,
    starts_give_the_same_tokens,
)
