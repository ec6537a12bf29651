"""Whether the definition of a kind is whole: what it names can be imported, and is what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec

from core.api.descriptors import Descriptor
from core.api.kinds import Kind
from core.plugins.drivers import describe

ABOUT = "about.toml"


def faults_of(kind: Kind) -> Iterator[str]:
    """Yield what is wrong with what a kind names, in words. Imports its descriptor and its protocols."""
    descriptor, reason = _imported(kind.descriptor)
    if reason:
        yield reason
    elif not (isinstance(descriptor, type) and issubclass(descriptor, Descriptor)):
        yield f"{kind.descriptor} is no subclass of core.api.Descriptor"
    else:
        yield from _of_descriptor(kind, descriptor)
    for contract in kind.contracts.values():
        for path in (contract.protocol, *contract.optional):
            protocol, reason = _imported(path)
            if reason or not isinstance(protocol, type):
                yield reason or f"{path} is no class"
    yield from _of_files(kind)


def _of_descriptor(kind: Kind, descriptor: type[Descriptor]) -> Iterator[str]:
    if descriptor.group != kind.group:
        yield f"{kind.descriptor} has the group '{descriptor.group}', not '{kind.group}'"
    fields = {name for base in descriptor.__mro__ for name in vars(base).get("__annotations__", ())}
    named = (*kind.contracts, *kind.calls, *kind.names, *kind.torch_free)
    unknown = sorted(set(named) - fields)
    if unknown:
        yield f"{kind.descriptor} has no field {', '.join(unknown)}"


def _of_files(kind: Kind) -> Iterator[str]:
    package, _, folder = kind.template.partition(":")
    if package and not (find_spec(package) and (files(package) / folder / ABOUT).is_file()):
        yield f"its templates lack {kind.template}/{ABOUT}"
    for module in kind.checks:
        if "." not in module or not _found(module):
            yield f"the checks of the kit in {module} cannot be found"


def _found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def _imported(path: str) -> tuple[object, str]:
    """Return what a path names, or why it names nothing."""
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name), ""
    except Exception as error:
        return None, f"{path} cannot be imported: {describe(error)}"
