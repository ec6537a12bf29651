"""Subject of a check: one installed plugin, and what several of its checks share."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast

from core.api.descriptors import Descriptor, KernelSpec
from core.plugins.catalog import Catalogue
from core.plugins.contracts import takes_options_alone
from core.plugins.drivers import describe, descriptor_of, load_impl
from core.plugins.entry import Entry
from core.plugins.kinds import HOOKS_GROUP, KINDS_GROUP
from core_testing.conformance.outcome import Failed, Unavailable
from core_testing.conformance.samples import Sample

T = TypeVar("T")
S = TypeVar("S", bound=Sample)
D = TypeVar("D", bound=Descriptor)


@dataclass
class Shared:
    """Objects that checks leave for later ones of the same run: results of child processes, reference models, folders.

    Attributes:
        entries: The plugins of the run.
    """

    entries: list[Entry] = field(default_factory=list)
    memo: dict[tuple[object, ...], Any] = field(default_factory=dict)
    stack: ExitStack = field(default_factory=ExitStack)

    def once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what `make` returns, made once for `key`."""
        if key not in self.memo:
            self.memo[key] = make()
        return cast(T, self.memo[key])

    def close(self) -> None:
        """Remove the folders."""
        self.memo.clear()
        self.stack.close()


@dataclass(frozen=True)
class Subject:
    """One plugin under check.

    Attributes:
        catalogue: Everything that is installed.
        device: Type of the device to run on.
    """

    entry: Entry
    catalogue: Catalogue
    shared: Shared
    device: str = "cpu"

    @property
    def title(self) -> str:
        """`group:name`, as node ids begin."""
        return f"{self.entry.group}:{self.entry.name}"

    @property
    def bare(self) -> bool:
        """Whether it has no descriptor: a hook module, or a kind that a plugin defines."""
        return self.entry.group in (HOOKS_GROUP, KINDS_GROUP)

    @property
    def package(self) -> str:
        """Top-level import package of the entry point."""
        return self.entry.value.partition(":")[0].split(".")[0]

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor. Raises `Failed` when the entry point gives none of its group."""
        loaded = self.once("descriptor", self._load)
        kind = descriptor_of(self.entry.group)
        if not isinstance(loaded, kind):
            raise Failed(f"{self.entry.value} is a {type(loaded).__name__}, not a {kind.__name__}")
        return loaded

    def spec(self, kind: type[D]) -> D:
        """Return the descriptor, whose kind the caller knows."""
        return cast(D, self.descriptor)

    def impl(self) -> Any:
        """Import the implementation; what core would call with nothing but its options has been given some."""
        from core_testing.conformance.tools.options import some_options

        loaded, descriptor = self.load(self.descriptor.impl), self.descriptor
        if descriptor.options is None or not takes_options_alone(descriptor.group):
            return loaded
        if isinstance(descriptor, KernelSpec) and descriptor.forms:
            return loaded  # a product: made for each layer
        given = some_options(self)
        return loaded(given) if descriptor.group == KernelSpec.group else partial(loaded, given)

    def load(self, path: str) -> Any:
        """Import `package.module:Attribute`. Raises `PluginError` with the cause."""
        return load_impl(path, self.entry)

    def samples(self, kind: type[S]) -> list[S]:
        """Return the samples of a kind that the plugin's `conformance` module has for this descriptor."""
        every = self.once("samples", self._samples)
        return [one for one in every if isinstance(one, kind) and one.plugin in ("", self.entry.name)]

    def need_samples(self, kind: type[S]) -> list[S]:
        """Return the samples of a kind. Raises `Unavailable` when there is none."""
        found = self.samples(kind)
        if not found:
            raise Unavailable(f"it ships no {kind.__name__}: add one to samples() in {self.package}.conformance")
        return found

    def wants(self, kind: type[Sample], lack: str) -> str:
        """Return a sentence that says what is lacking, and which sample of the plugin would help."""
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        return f"{lack}: add {article} {kind.__name__} to samples() in {self.package}.conformance"

    def folder(self) -> Path:
        """Return a new empty directory, removed after the run."""
        return Path(self.shared.stack.enter_context(tempfile.TemporaryDirectory(prefix="core-conformance-")))

    def once(self, key: str, make: Callable[[], T]) -> T:
        """Return what `make` returns, made once for this plugin in a run."""
        return self.shared.once((self.entry, key), make)

    def on(self, device: str) -> Subject:
        """Return the same plugin, to be run on another device."""
        return replace(self, device=device)

    def distribution(self) -> importlib.metadata.Distribution:
        """Return the metadata of the distribution it comes from."""
        return importlib.metadata.distribution(self.entry.dist)

    def _load(self) -> Any:
        try:
            return self.entry.load()
        except Exception as error:
            raise Failed(f"{self.entry.value} cannot be imported: {describe(error)}") from error

    def _samples(self) -> list[Sample]:
        name = f"{self.package}.conformance"
        if importlib.util.find_spec(self.package) is None or importlib.util.find_spec(name) is None:
            return []
        try:
            return list(import_module(name).samples())
        except Exception as error:
            raise Failed(f"{name}.samples() raised {describe(error)}") from error
