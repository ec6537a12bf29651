"""Contracts: which methods the objects of a plugin must have, and which arguments core calls them with.

They are derived from the protocols of `core.api`. An object is held against its protocol when it is bound, once, so
that a mistake is found before anything is loaded, with the plugin's name, and not by the first request.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from functools import reduce
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from core.api.descriptors import Descriptor, KernelSpec
from core.api.errors import PluginError
from core.api.kernels import ROW_PRODUCTS
from core.plugins.catalog import Entry
from core.plugins.kinds import kind_of

Parameter = inspect.Parameter

_NEARLY = 0.8
"""Likeness of two names, of 1, from which on one is taken for the other misspelt."""


class Contract(NamedTuple):
    """What an object that a descriptor names has to be.

    Attributes:
        protocol: Its protocol, as `module:Class` of `core.api`.
        optional: Protocols of optional parts: of them, the methods that it has must fit.
        may_lack: Methods of `protocol` that not every implementation needs.
        closed: `protocol` is a base class, and its methods are all that there are: a public method of another name is
            a misspelt one.
        free: Methods of `protocol` whose arguments are up to the implementation.
    """

    protocol: str
    optional: tuple[str, ...] = ()
    may_lack: frozenset[str] = frozenset()
    closed: bool = False
    free: frozenset[str] = frozenset()


IMPLEMENTATIONS = MappingProxyType(
    {
        "core.platforms": Contract("platform:Platform", closed=True),
        "core.attention_backends": Contract(
            "attention:AttentionBackend",
            (
                "attention:Encodes",
                "attention:Latent",
                "attention:Picks",
                "attention:ReportsKV",
                "attention:Replayable",
            ),
        ),
        "core.quantization": Contract("quantization:Format"),
        # A model that only pools has no logits.
        "core.models": Contract(
            "models:Model", ("models:Classifies", "attention:AfterLoad"), may_lack=frozenset({"logits"})
        ),
        "core.weight_loaders": Contract("weights:CheckpointReader"),
        "core.model_sources": Contract(
            "weights:ModelSource", ("sources:ReachesOut", "sources:KeepsModels", "sources:RemovesModels")
        ),
        "core.tool_parsers": Contract("parsers:OutputParser", ("parsers:KnowsThinking", "parsers:EnforcesCalls")),
        "core.kv_connectors": Contract("connectors:KVConnector"),
        "core.weight_transfer": Contract("weights:WeightReceiver"),
        "core.weight_stores": Contract("weights:WeightStore"),
        "core.executors": Contract("executors:Executor"),
        "core.schedulers": Contract(
            "schedulers:SchedulerPolicy", ("schedulers:AdmissionPolicy", "schedulers:ChunkPolicy")
        ),
        "core.structured_output": Contract("structured:StructuredOutputBackend", ("structured:LoadsGrammars",)),
        "core.drafters": Contract("drafters:Drafter"),
        "core.participants": Contract("participants:Participant", closed=True),
        "core.logits": Contract("logits:LogitsProcessor"),
        "core.stat_sinks": Contract("sinks:StatSink"),
        "core.io_processors": Contract("io_processors:IOProcessor"),
        "core.routes": Contract("routes:RoutePlugin"),
        "core.commands": Contract("commands:Command", ("cli:UsesHost",)),
        "core.tool_servers": Contract("tool_servers:ToolServerClient"),
    }
)
"""The contract of a descriptor's `impl`, by kind. Kernels have that of their operation."""

PRODUCT = Contract("products:Product", closed=True)
OWN_PRODUCT = PRODUCT._replace(free=frozenset({"apply"}))
"""A product of an operation whose reference form says what its `apply` is given."""

_KV_MANAGER = Contract("kvspecs:KVManager")
_FURTHER_HALVES = MappingProxyType(
    {
        ("core.kv_connectors", "worker_impl"): Contract("connectors:KVConnectorWorker"),
        ("core.participants", "worker_impl"): Contract("participants:WorkerParticipant", closed=True),
        ("core.participants", "front_impl"): Contract("participants:FrontParticipant", closed=True),
    }
)
"""The contracts of what a descriptor names beside its `impl`, by kind and field."""
_ARGUMENTS = MappingProxyType(
    {
        "probe": (),
        "shape": ("config",),
        "refine": ("request", "probe"),
        "forms_of": ("checkpoint",),
        "check": ("extra_args",),
        "environment": ("threads",),
    }
)
"""What core calls the functions with that descriptors name."""


def check_contract(entry: Entry, descriptor: Descriptor, path: str, loaded: object) -> None:
    """Hold what a descriptor names by `path` against its contract.

    Raises:
        PluginError: CORE-P160 with every method that is missing or cannot be called as core calls it.
    """
    for field, arguments in _ARGUMENTS.items():
        if getattr(descriptor, field, None) == path:
            wanted = inspect.Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in arguments])
            _refuse(entry, path, "its descriptor", list(_against(field, wanted, _signature(loaded))))
    further = [
        contract
        for (group, field), contract in _FURTHER_HALVES.items()
        if group == entry.group and getattr(descriptor, field, None) == path
    ]
    if further:
        check_object(entry, path, loaded, further[0])
    elif path in getattr(descriptor, "kv_managers", {}).values():
        check_object(entry, path, loaded, _KV_MANAGER)
    elif isinstance(descriptor, KernelSpec) and path in (descriptor.impl, descriptor.reference):
        _check_kernel(entry, descriptor, path, loaded)
    elif descriptor.impl == path:
        check_impl(entry, path, loaded, options=descriptor.options is not None)


def check_impl(entry: Entry, path: str, loaded: object, *, options: bool = False) -> None:
    """Hold the implementation of a plugin against the contract of its kind. Raises `PluginError` CORE-P160.

    Args:
        options: Its descriptor names an options model.
    """
    contract = IMPLEMENTATIONS.get(entry.group)
    if contract is not None:
        check_object(entry, path, loaded, contract, options=options)


def check_object(entry: Entry, what: str, value: object, contract: Contract, *, options: bool = False) -> None:
    """Hold a class, a function that makes such objects, or an object against a contract.

    Of what only makes the objects, the arguments and the optional parts are looked at.

    Args:
        options: Where the protocol says nothing of its constructor, it is called with the plugin's options.

    Raises:
        PluginError: CORE-P160.
    """
    protocol = _protocol(contract.protocol)
    wrong: list[str] = []
    makes = isinstance(value, type) or (callable(value) and "__init__" in vars(protocol) and _maker(value, protocol))
    if makes:
        wrong += _against("__init__", _without_self(_constructor(protocol, options)), _signature(value))
    if isinstance(value, type) or not makes:
        wrong += _methods(protocol, value, contract.may_lack, contract.free)
    wrong += _optional(contract, value)
    if contract.closed:
        wrong += _beyond(protocol, value)
    _refuse(entry, what, protocol.__name__, wrong)


def takes_options_alone(group: str) -> bool:
    """Whether the implementation of a kind is called with nothing but its plugin's options, if there are any."""
    contract = IMPLEMENTATIONS.get(group)
    return contract is None or len(_constructor(_protocol(contract.protocol), False).parameters) == 1


def methods_of(protocol: type) -> dict[str, Any]:
    """Return the methods of a protocol by name, without its constructor."""
    return {
        name: member
        for base in reversed(protocol.__mro__)
        if base is not Protocol
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod))
    }


def misfits(protocol: type, value: object) -> list[str]:
    """Return what keeps a class or an object from being one of `protocol`, in words; empty if nothing does."""
    return list(_methods(protocol, value, frozenset()))


def misfits_of(contract: Contract, value: object) -> list[str]:
    """Return what keeps an object from fitting a contract, in words, its optional parts included."""
    protocol = _protocol(contract.protocol)
    beyond = _beyond(protocol, type(value)) if contract.closed else ()
    return [*_methods(protocol, value, contract.may_lack, contract.free), *_optional(contract, value), *beyond]


def check_form(entry: Entry, what: str, spec: KernelSpec, form: object) -> None:
    """Hold a kernel's form of its operation against the reference form. Raises `PluginError` CORE-P160."""
    try:
        reference = _reference(spec)
    except Exception as error:
        _refuse(entry, what, f"operation {spec.op}", [f"{spec.reference}: {type(error).__name__}: {error}"])
        return
    if not spec.multiplies:
        wanted = _signature(reference)
        wrong = [] if callable(form) else [f"it is a {type(form).__name__}, which cannot be called"]
        wrong += _against("", wanted, _signature(form)) if callable(form) and wanted is not None else ()
        _refuse(entry, what, f"operation {spec.op}", wrong)
        return
    own = spec.op not in ROW_PRODUCTS
    check_object(entry, what, form, OWN_PRODUCT if own else PRODUCT)
    if own and isinstance(form, type):
        wanted, found = (_without_self(inspect.signature(one.apply)) for one in (reference, form))  # type: ignore[attr-defined]
        _refuse(entry, what, f"operation {spec.op}", list(_against("apply", wanted, found)))


def _check_kernel(entry: Entry, spec: KernelSpec, path: str, loaded: object) -> None:
    if path == spec.impl and spec.options is not None and not spec.multiplies:
        names = inspect.Signature([Parameter("options", Parameter.POSITIONAL_OR_KEYWORD)])
        _refuse(entry, path, "its descriptor", list(_against("impl", names, _signature(loaded))))
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


def _optional(contract: Contract, value: object) -> Iterator[str]:
    for name in contract.optional:
        protocol = _protocol(name)
        yield from _methods(protocol, value, frozenset(methods_of(protocol)))
    yield from _misspelt(contract, value)


def _misspelt(contract: Contract, value: object) -> Iterator[str]:
    """Yield the methods that are named nearly as an optional one, which core would never find."""
    optional = [name for one in contract.optional for name in methods_of(_protocol(one))]
    known = {*methods_of(_protocol(contract.protocol)), *optional}
    lacking = [name for name in optional if getattr(value, name, None) is None]
    kind = value if isinstance(value, type) else type(value)
    own = {name for base in kind.__mro__[:-1] for name, member in vars(base).items() if callable(member)}
    for name in sorted(one for one in own - known if not one.startswith("_")):
        for meant in get_close_matches(name, lacking, n=1, cutoff=_NEARLY):
            yield f"its {name}() is nearly {meant}(), an optional method: spell it so, or begin its name with _"


def _methods(
    protocol: type, value: object, may_lack: frozenset[str], free: frozenset[str] = frozenset()
) -> Iterator[str]:
    for name, member in methods_of(protocol).items():
        wanted = _without_self(inspect.signature(getattr(member, "__func__", member)))
        found = getattr(value, name, None)
        if found is None:
            if name not in may_lack and not _comes_later(value, name):
                yield f"it lacks {name}{_shown(wanted)}"
        elif not callable(found):
            if not isinstance(value, type) or not isinstance(found, property):
                yield f"its {name} is a {type(found).__name__}, not a method {name}{_shown(wanted)}"
        elif name not in free:
            plain = isinstance(value, type) and inspect.isfunction(inspect.getattr_static(value, name))
            plain = plain and not isinstance(member, classmethod)
            signature = _signature(found)
            yield from _against(name, wanted, _without_self(signature) if plain and signature else signature)


def _beyond(base: type, value: object) -> Iterator[str]:
    """Yield what a class has that its base class, which says all that is called, has not."""
    if not isinstance(value, type) or not issubclass(value, base):
        yield f"it is no subclass of core.api.{base.__name__}"
        return
    own = {name for kind in value.__mro__ if kind not in base.__mro__ for name in vars(kind)}
    odd = sorted(name for name in own - set(dir(base)) if not name.startswith("_") and callable(getattr(value, name)))
    if odd:
        known = ", ".join(sorted(methods_of(base)))
        yield f"it has {', '.join(odd)}, which nobody calls; methods are {known}, and helpers begin with _"


def _comes_later(value: object, name: str) -> bool:
    """Whether objects of a class may have a method that the class has not: it is annotated, or looked up by name."""
    if not isinstance(value, type):
        return False
    annotated = any(name in vars(base).get("__annotations__", {}) for base in value.__mro__)
    return annotated or hasattr(value, "__getattr__")


def _against(name: str, wanted: inspect.Signature, found: inspect.Signature | None) -> Iterator[str]:
    """Yield why what has the signature `found` cannot be called as `wanted` says; None: nobody can tell."""
    if found is None:
        return
    try:
        for everything in (False, True):
            positional, named = _call(wanted, everything)
            found.bind(*positional, **named)
    except TypeError as error:
        yield f"{name}{_shown(wanted)} is called, but its signature is {name}{_shown(found)} ({error})"


def _call(wanted: inspect.Signature, everything: bool) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of a call with everything, or with what has no default."""
    positional, named = [], {}
    for parameter in wanted.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD or (parameter.default is not Parameter.empty and not everything):
            continue
        if parameter.kind is Parameter.KEYWORD_ONLY:
            named[parameter.name] = parameter.name
        elif parameter.kind is not Parameter.VAR_POSITIONAL or everything:
            positional.append(parameter.name)
    return positional, named


def _protocol(name: str) -> type:
    module, _, attribute = name.partition(":")
    found: type = getattr(import_module(f"core.api.{module}"), attribute)
    return found


def _constructor(protocol: type, options: bool) -> inspect.Signature:
    """Return the signature of a protocol's constructor; one that says nothing of it takes the options, if any."""
    own = vars(protocol).get("__init__")
    if own is None or own.__module__ != protocol.__module__:
        names = ("self", "options") if options else ("self",)
        return inspect.Signature([Parameter(name, Parameter.POSITIONAL_ONLY) for name in names])
    return inspect.signature(own)


def _maker(value: object, protocol: type) -> bool:
    """Whether an object that is no class makes objects of `protocol`, and is not one itself."""
    return not all(hasattr(value, name) for name in methods_of(protocol))


def _signature(value: Any) -> inspect.Signature | None:
    """Return a callable's signature; None for one that does not tell."""
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return None


def _without_self(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _shown(signature: inspect.Signature) -> str:
    """Return the parameters without annotations."""
    bare = [one.replace(annotation=Parameter.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(bare))


def _refuse(entry: Entry, what: str, contract: str, wrong: list[str]) -> None:
    if wrong:
        kind = kind_of(entry.group)
        raise PluginError(
            "CORE-P160",
            f"{kind.label} '{entry.name}' ({entry.owner}): {what} does not fit {contract}: {'; '.join(wrong)}.",
            hint=f"Tell the authors of {entry.dist}; `core plugins doctor {entry.name}` checks it.",
        )
