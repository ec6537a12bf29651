"""Kinds of plugin: each is one object, core's own and those that plugins define (entry-point group `core.kinds`).

Everything that is to be known of a kind stands in it: who its plugins are, what they are held against, how users choose
among them, what the kit asks of them and what `core plugins new` writes. Paths are texts, so that nothing is imported
before it is needed. Provisional.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from core.api.descriptors import Descriptor
    from core.api.errors import PluginError

Tier = Literal["stable", "provisional"]
"""How firm a kind is."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Contract:
    """Contract of an object of a plugin: it is checked against this when it is bound, once.

    Attributes:
        protocol: Its protocol, as `package.module:Class`.
        optional: Protocols of optional parts, as paths: of them, the methods that it has must fit.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of plugin.

    Attributes:
        group: The entry-point group of its plugins.
        label: The kind in a sentence ("attention backend").
        summary: What it is, in a few words, for the list of kinds.
        descriptor: Path of what an entry point of the group names, a subclass of `Descriptor`; empty: a module.
        api: The API integer; it grows when plugins of the kind break.
        oldest: Oldest integer that is accepted; None: the one before the current.
        tier: `stable` breaks with a new integer only, `provisional` may with a note in one release.
        option: Option that chooses among its plugins: `--option`, `CORE_OPTION`, `select.option`; empty: there is none.
        help: What help says of the option.
        many: Several take part, in the order named; otherwise a list of names is an order of preference.
        needed: Whether every start has one; the others take part only when they are named.
        also: Further options of core's that choose one of the kind, for a part of its work.
        contracts: Field of the descriptor -> what the object that it names has to be. A field may be a mapping of
            paths. That of `impl` is the kind's own.
        calls: Field of the descriptor -> the arguments that the function which it names is called with.
        names: Fields of the descriptor that name further objects, which have no contract.
        torch_free: Fields of the descriptor whose objects are imported in processes that have no torch.
        context: Of a kind of core's whose plugins participants drive (`ParticipantSpec.drives`): path of what an object
            is made with, called with `vocab_size`, `tokenizer` and `options`; empty: core alone binds its plugins.
        driver: Group of the kind whose plugins drive those of this one of core's, which their descriptors say
            (`drives`); empty: core itself does.
        template: Folder of templates for `core plugins new`, as `package:folder`; empty: there is none. Those of core's
            kinds are found by their groups.
        checks: Modules of the conformance kit with the kind's `CHECKS`; one without a dot is an area of core's kit.
    """

    group: str
    label: str
    summary: str = ""
    descriptor: str = ""
    api: int = 1
    oldest: int | None = None
    tier: Tier = "provisional"
    option: str = ""
    help: str = ""
    many: bool = False
    needed: bool = False
    also: tuple[str, ...] = ()
    contracts: Mapping[str, Contract] = field(default_factory=lambda: _NOTHING)
    calls: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)
    names: tuple[str, ...] = ()
    torch_free: tuple[str, ...] = ()
    context: str = ""
    driver: str = ""
    template: str = ""
    checks: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.group)

    @property
    def options(self) -> tuple[str, ...]:
        """Every option that chooses one of the kind."""
        return (self.option, *self.also) if self.option else ()

    @property
    def flag(self) -> str:
        """The command-line flag that chooses it, or an empty text."""
        return f"--{self.option.replace('_', '-')}" if self.option else ""

    @property
    def contract(self) -> Contract | None:
        """Contract of its plugins' implementation; None: that is not for the kind to say."""
        return self.contracts.get("impl")

    @property
    def first_api(self) -> int:
        """The oldest integer that is accepted."""
        return max(1, self.api - 1 if self.oldest is None else self.oldest)

    def accepts(self, api: int) -> bool:
        """Say whether a plugin written for integer `api` can be used."""
        return self.first_api <= api <= self.api


class Fit(Protocol):
    """Holds what a plugin handed out against a contract, once for a type."""

    def __call__(self, what: str, value: T, contract: Contract) -> T:
        """Return an object that fits; `what` is the method that handed it out.

        Raises:
            PluginError: CORE-P160 with the plugin, and every method that is missing or cannot be called.
        """
        ...


def _unseen(what: str, value: T, contract: Contract) -> T:
    return value


def _nobodys(what: str, error: BaseException) -> PluginError:
    from core.api.errors import PluginError

    return PluginError("CORE-P108", f"{what} raised {type(error).__name__}: {error}.")


@dataclass(frozen=True, slots=True)
class Chosen:
    """A plugin that takes part: of a kind that a plugin defines, or of one of core's that its asker drives.

    Attributes:
        name: Its name, which users type.
        owner: Name, distribution and version, for messages.
        spec: Its descriptor.
        value: An object of its implementation, made with its options where it has some; of a kind with a
            `Kind.context`, with that.
        fit: Holds what `value` hands out against a contract.
        blame: Returns the error that attributes what `value` raised to the plugin: `blame("its_method()", error)`.
    """

    name: str
    owner: str
    spec: Descriptor
    value: Any
    fit: Fit = field(default=_unseen, repr=False, compare=False)
    blame: Callable[[str, BaseException], PluginError] = field(default=_nobodys, repr=False, compare=False)


AskChosen = Callable[[Kind | str], Sequence[Chosen]]
"""Returns the chosen plugins of a kind (or of the group of one), in order: of one that a plugin defines, or that the
asker's descriptor says it drives. `PluginError` CORE-P132 for any other kind of core's."""


def nobody(_: Kind | str) -> Sequence[Chosen]:
    """Return no plugin: what is asked where nothing is chosen."""
    return ()


def unwritten(chosen: Chosen) -> str:
    """Raise `LookupError`: there is no engine here whose plugin another process could load."""
    raise LookupError(f"there is no engine here that '{chosen.name}' is chosen for")


def load_chosen(text: str) -> Chosen:
    """Return the plugin that another process wrote with `EngineSetup.dumps`, made in this one.

    Nothing else of the plan is loaded, except what reads the checkpoint where a tokenizer is needed, which is read at
    once. This process is to have the same plugins installed.
    """
    name, _, content = text.rstrip("\n").partition(" ")
    chosen: Chosen = pkgutil.resolve_name(name)(content)
    return chosen
