"""The store: a file for each key, mapped when a model starts. Importing it loads no torch; `open` and `keep` do."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api import KeptWeights
from core_plugin_mapped_weights.folder import Folder, fault_of, locked
from core_plugin_mapped_weights.layout import Layout, UnusableError, read
from core_plugin_mapped_weights.options import MappedOptions

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0)
"""The map is private and can be written to, but nearly nobody does: no memory is set aside for that."""


class MappedStore:
    """A `WeightStore` of files in a folder of this user."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        given = MappedOptions.model_validate(dict(options))
        self._folder = Folder(given.place, given.max_bytes)

    def open(self, key: str) -> Mapping[str, Tensor] | None:
        """Map the file of a key; None where there is none. What cannot be used is removed, with a warning."""
        path = self._folder.file(key)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._discard(path, str(error))
            return None
        try:
            layout = _checked(file, key)
            shown = mmap.mmap(file, layout.size, mmap.MAP_PRIVATE | _NORESERVE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        except (UnusableError, OSError, ValueError) as error:
            self._discard(path, str(error))
            return None
        finally:
            os.close(file)
        with contextlib.suppress(OSError):
            os.utime(path)  # so that it counts as used
        return _tensors(shown, layout)

    def keep(
        self, key: str, tensors: Mapping[str, Tensor], about: Mapping[str, str], wanted: Callable[[], bool]
    ) -> bool:
        """Write the file of a key, unless it is there or being written by somebody else."""
        from core_plugin_mapped_weights.writing import GivenUpError, layout_for, write

        path, part = self._folder.file(key), self._folder.part(key)
        file = None
        try:
            self._folder.prepare()
            if fault := fault_of(os.stat(self._folder.path)):
                raise UnusableError(f"the folder is not to be trusted: {fault}")
            if path.exists():
                return True
            layout = layout_for(tensors, {"key": key, **about})
            file = locked(part, create=True)
            if file is None:
                return False  # the first one keeps them
            if fault := self._folder.make_room(layout.size, key):
                raise UnusableError(fault)
            os.ftruncate(file, 0)
            write(file, layout, tensors, wanted)
            os.rename(part, path)
        except GivenUpError:
            return False
        except (UnusableError, OSError) as error:
            log.warning(
                "CORE-M223 the packed weights are not kept in %s: %s. Make room, or name another place with "
                "--opt mapped.folder=FOLDER.",
                *(self._folder.path, error),
            )
            return False
        finally:
            if file is not None:
                with contextlib.suppress(OSError):
                    part.unlink(missing_ok=True)
                os.close(file)
        return True

    def entries(self) -> Iterator[KeptWeights]:
        """Yield what is kept; a file that cannot be read is nobody's model."""
        for key, path, found in self._folder.files():
            model = "?"
            with contextlib.suppress(OSError, UnusableError), path.open("rb") as file:
                model = read(file.fileno(), found.st_size).about.get("model", model)
            yield KeptWeights(key=key, model=model, path=str(path), num_bytes=found.st_size, used=found.st_mtime)

    def remove(self, key: str) -> int:
        """Remove the file of a key."""
        path = self._folder.file(key)
        size = path.lstat().st_size if path.is_symlink() or path.exists() else 0
        path.unlink(missing_ok=True)
        return size

    def _discard(self, path: Path, why: str) -> None:
        log.warning("CORE-M222 the packed weights in %s are not used, and removed: %s.", path, why)
        with contextlib.suppress(OSError):
            path.unlink()


def _checked(file: int, key: str) -> Layout:
    """Return the layout of a file. Raises `UnusableError`, `OSError`."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise UnusableError("it is no file")
    if fault := fault_of(found):
        raise UnusableError(fault)
    layout = read(file, found.st_size)
    if layout.about.get("key") != key:
        raise UnusableError("it was written under another name")
    return layout


def _tensors(shown: mmap.mmap, layout: Layout) -> dict[str, Tensor]:
    """Return the tensors of a mapped file; it stays mapped for as long as one of them is there."""
    import torch

    found = {}
    for place in layout.places:
        if not place.num_bytes:
            found[place.name] = torch.empty(place.shape, dtype=getattr(torch, place.dtype))
            continue
        stored = torch.frombuffer(shown, dtype=torch.uint8, offset=place.begin, count=place.num_bytes)
        found[place.name] = stored.view(getattr(torch, place.dtype)).view(place.shape)
    with contextlib.suppress(OSError, AttributeError):
        shown.madvise(mmap.MADV_WILLNEED)
    return found
