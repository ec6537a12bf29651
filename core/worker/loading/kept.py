"""Packed weights that outlive their engine: a start takes them from a weight store, or leaves them there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from core.api.errors import CoreError
from core.api.record import EMPTY
from core.layers.weights import WeightGroup
from core.worker.loading.identity import key_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from core.api.weights import WeightStore
    from core.config.resolved import EngineConfig
    from core.layers.params import Filling, Group, Params
    from core.plugins.active import ActivePlugins
    from core.plugins.plan import PlannedPlugin

log = logging.getLogger(__name__)

DELAY_SECONDS = 1.0
"""Between the end of a start and the writing: what else starts then has the machine to itself."""

CLOSE_SECONDS = 8.0
"""How long the end of an engine waits for the writing: less than it is given before it is killed."""


class PackedWeights:
    """A model's packed weights on their way from and to the weight store of the plan, if it has one.

    Only weights whose products name a layout are kept; the others, norms for instance, are small, and go on being read
    from the checkpoint. What fails is a warning (CORE-P161), and the start goes on without.

    Attributes:
        num_bytes: Bytes of parameters that are the memory in which the store shows them.
    """

    def __init__(
        self, config: EngineConfig, active: ActivePlugins, groups: Sequence[Group], device: torch.device
    ) -> None:
        self.num_bytes = 0
        self._config, self._active, self._device = config, active, device
        self._planned: PlannedPlugin | None = config.plan.one("core.weight_stores")
        self._groups = [one for one in groups if isinstance(one, WeightGroup) and one.identity] if self._planned else []
        self._store: WeightStore | None = None
        self._key = ""
        self._given_up, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def find(self) -> Mapping[Group, Filling]:
        """Return the groups that the store has, all that can be kept or none."""
        if self._planned is None or not self._groups:
            return EMPTY
        try:
            self._store = self._active.new(self._planned)
            self._key = key_of(self._config, self._groups)
            if not self._key:
                log.warning(
                    "CORE-M220 the weights are not kept: the weight loader does not say in which files they are."
                )
                return EMPTY
            found = self._active.guard(self._planned, "open()", self._store.open, self._key)
            params = None if found is None else self._by_group(found)
            if found is not None and params is None:
                log.warning("CORE-M221 the weight store has other weights under %s; they are removed.", self._key)
                self._active.guard(self._planned, "remove()", self._store.remove, self._key)
        except (CoreError, OSError) as error:
            self._store = None
            self._warn(error)
            return EMPTY
        if params is None:
            return EMPTY
        self._groups, self._store = [], None  # nothing is left to be kept
        return {group: group.kept(own) for group, own in params.items()}

    def begin(self) -> None:
        """Begin to keep what the store did not have, on a thread of its own; the model is loaded."""
        if self._store is None or not self._key or self._given_up.is_set():
            return
        self._thread = threading.Thread(target=self._keep, name="keep-weights", daemon=True)
        self._thread.start()

    def give_up(self) -> None:
        """Keep nothing any more: the weights change, and the old ones are to be freed."""
        self._given_up.set()
        self._closing.set()
        self._end()

    def close(self) -> None:
        """Let the writing come to an end, for some seconds. Harmless when nothing is written, or twice."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
        self._given_up.set()
        self._end()

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread, self._store, self._groups = None, None, []

    def _keep(self) -> None:
        self._closing.wait(DELAY_SECONDS)
        store, planned = self._store, self._planned
        if store is None or planned is None or self._given_up.is_set():
            return
        tensors = dict(self._tensors())
        about = {"model": self._config.files.reference}
        wanted = self._given_up
        try:
            done = self._active.guard(
                planned, "keep()", store.keep, self._key, tensors, about, lambda: not wanted.is_set()
            )
            log.info("packed weights are %s by weight store %s", "kept" if done else "not kept", planned.owner)
        except CoreError as error:
            self._warn(error)

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        for number, group in enumerate(self._groups):
            for name, tensor in group.layers[0].params.items() if group.layers else ():
                yield f"{number}:{group.prefix}:{name}", tensor

    def _by_group(self, found: Mapping[str, Tensor]) -> dict[WeightGroup, Params] | None:
        """Return each group's parameters; None if they are not those of the groups."""
        params: dict[WeightGroup, Params] = {group: {} for group in self._groups}
        for name, tensor in found.items():
            number, _, rest = name.partition(":")
            group = self._groups[int(number)] if number.isdigit() and int(number) < len(self._groups) else None
            if group is not None:
                params[group][rest.rpartition(":")[2]] = own = tensor.to(self._device)
                self.num_bytes += own.nbytes if own is tensor else 0
        if not all(_fits(group, own) for group, own in params.items()):
            return None
        return params

    def _warn(self, error: Exception) -> None:
        owner = "" if self._planned is None else self._planned.owner
        log.warning("CORE-P161 weight store %s: %s The weights are packed, and not kept.", owner, error)


def _fits(group: WeightGroup, params: Params) -> bool:
    """Whether parameters can be those of a group, as far as their sizes tell: `finish` may have made them smaller."""
    return params.keys() == group.sizes.keys() and all(
        params[name].dtype == dtype and params[name].numel() <= _numel(shape) and params[name].dim() == len(shape)
        for name, (shape, dtype) in group.sizes.items()
    )


def _numel(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
