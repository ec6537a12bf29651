"""Contracts: which methods the objects of a plugin must have, and which arguments core calls them with.

They are derived from the protocols that a kind names. An object is held against its protocol when it is bound, once, so
that a mistake is found before anything is loaded, with the plugin's name, and not by the first request.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from importlib import import_module
from types import MappingProxyType

from core.api.descriptors import Descriptor, KernelSpec
from core.api.errors import PluginError
from core.api.kernels import ROW_PRODUCTS
from core.api.kinds import Contract
from core.plugins.entry import Entry
from core.plugins.fitting import constructor_of, misfits_of_impl, protocol_of
from core.plugins.kinds import KINDS, kind_of
from core.plugins.signatures import against, of_names, signature_of, without_self

IMPLEMENTATIONS: Mapping[str, Contract] = MappingProxyType(
    {kind.group: kind.contract for kind in KINDS.values() if kind.contract is not None}
)
"""The contract of a descriptor's `impl`, by core's kinds. Kernels have that of their operation."""

PRODUCT = Contract("core.api.products:Product", closed=True)
OWN_PRODUCT = replace(PRODUCT, free=frozenset({"apply"}))
"""A product of an operation whose reference form says what its `apply` is given."""


def check_contract(entry: Entry, descriptor: Descriptor, path: str, loaded: object) -> None:
    """Hold what a descriptor names by `path` against its contract.

    Raises:
        PluginError: CORE-P160 with every method that is missing or cannot be called as core calls it.
    """
    kind = kind_of(entry.group)
    for field, arguments in kind.calls.items():
        if path in paths_in(descriptor, field):
            wrong = list(against(field, of_names(*arguments), signature_of(loaded)))
            _refuse(entry, path, "its descriptor", wrong)
    further = [one for field, one in kind.contracts.items() if field != "impl" and path in paths_in(descriptor, field)]
    if further:
        check_object(entry, path, loaded, further[0])
    elif isinstance(descriptor, KernelSpec) and path in (descriptor.impl, descriptor.reference):
        _check_kernel(entry, descriptor, path, loaded)
    elif descriptor.impl == path:
        check_impl(entry, path, loaded, options=descriptor.options is not None)


def paths_in(descriptor: Descriptor, field: str) -> tuple[str, ...]:
    """Return the paths that a field of a descriptor names: one, those of a mapping, or none."""
    value = getattr(descriptor, field, None)
    values = value.values() if isinstance(value, Mapping) else (value,)
    return tuple(path for path in values if isinstance(path, str))  # some kinds have a method of such a name


def check_impl(entry: Entry, path: str, loaded: object, *, options: bool = False) -> None:
    """Hold the implementation of a plugin against the contract of its kind. Raises `PluginError` CORE-P160.

    Args:
        options: Its descriptor names an options model.
    """
    contract = kind_of(entry.group).contract
    if contract is not None:
        check_object(entry, path, loaded, contract, options=options)


def check_object(entry: Entry, what: str, value: object, contract: Contract, *, options: bool = False) -> None:
    """Hold a class, a function that makes such objects, or an object against a contract.

    Args:
        options: Where the protocol says nothing of its constructor, it is called with the plugin's options.

    Raises:
        PluginError: CORE-P160.
    """
    wrong = misfits_of_impl(contract, value, options=options)
    _refuse(entry, what, protocol_of(contract.protocol).__name__, wrong)


def takes_options_alone(group: str) -> bool:
    """Whether the implementation of a kind is called with nothing but its plugin's options, if there are any."""
    contract = kind_of(group).contract
    return contract is None or len(constructor_of(protocol_of(contract.protocol), False).parameters) == 1


def check_form(entry: Entry, what: str, spec: KernelSpec, form: object) -> None:
    """Hold a kernel's form of its operation against the reference form. Raises `PluginError` CORE-P160."""
    try:
        reference = _reference(spec)
    except Exception as error:
        _refuse(entry, what, f"operation {spec.op}", [f"{spec.reference}: {type(error).__name__}: {error}"])
        return
    if not spec.multiplies:
        wanted = signature_of(reference)
        wrong = [] if callable(form) else [f"it is a {type(form).__name__}, which cannot be called"]
        wrong += against("", wanted, signature_of(form)) if callable(form) and wanted is not None else ()
        _refuse(entry, what, f"operation {spec.op}", wrong)
        return
    own = spec.op not in ROW_PRODUCTS
    check_object(entry, what, form, OWN_PRODUCT if own else PRODUCT)
    if own and isinstance(form, type):
        wanted, found = (without_self(inspect.signature(one.apply)) for one in (reference, form))  # type: ignore[attr-defined]
        _refuse(entry, what, f"operation {spec.op}", list(against("apply", wanted, found)))


def _check_kernel(entry: Entry, spec: KernelSpec, path: str, loaded: object) -> None:
    if path == spec.impl and spec.options is not None and not spec.multiplies:
        wrong = list(against("impl", of_names("options"), signature_of(loaded)))
        _refuse(entry, path, "its descriptor", wrong)
    else:
        check_form(entry, path, spec, loaded)


def _reference(spec: KernelSpec) -> object:
    """Return the reference form of a kernel's operation.

    It is imported by its name: this module stays free of torch, which a kernel that is at hand has imported.
    """
    if spec.reference is None:
        form: object = import_module("core.ops.registry").REGISTRY[spec.op].reference
        return form
    module, _, attributes = spec.reference.partition(":")
    return reduce(getattr, attributes.split("."), import_module(module))


def _refuse(entry: Entry, what: str, contract: str, wrong: list[str]) -> None:
    if wrong:
        kind = kind_of(entry.group)
        raise PluginError(
            "CORE-P160",
            f"{kind.label} '{entry.name}' ({entry.owner}): {what} does not fit {contract}: {'; '.join(wrong)}.",
            hint=f"Tell the authors of {entry.dist}; `core plugins doctor {entry.name}` checks it.",
        )
