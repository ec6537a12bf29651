"""Objects that plugins hand out (layers, matchers, parsers, sessions) are held against their protocols, once a type.

What lacks a method, or has one that cannot be called as core calls it, is refused where it is handed over, by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from core.api.errors import CoreError, PluginError, RequestError
from core.api.kinds import Contract
from core.plugins.drivers import describe
from core.plugins.fitting import misfits_of

T = TypeVar("T")

ATTENTION_LAYER = Contract(
    "core.api.attention:AttentionLayer",
    (
        "core.api.attention:AfterLoad",
        "core.api.attention:TakesScales",
        "core.api.attention:TakesSinks",
        "core.api.attention:StoresRotated",
    ),
)
ENCODER_LAYER = Contract("core.api.attention:EncoderLayer")
LATENT_LAYER = Contract(
    "core.api.attention:LatentLayer",
    ("core.api.attention:AfterLoad", "core.api.attention:TakesPicks", "core.api.attention:TakesScales"),
)
PICKER = Contract("core.api.attention:Picker", ("core.api.attention:AfterLoad",))
COMPRESSED_LAYER = Contract("core.api.attention:CompressedLayer", ("core.api.attention:AfterLoad",))
CHAT_TEMPLATE = Contract("core.api.templates:ChatTemplate")
OUTPUT_PARSER = Contract("core.api.parsers:OutputParser")
GRAPH = Contract("core.api.facets:Graph")
REPLAYABLE = Contract("core.api.attention:Replayable")
QUEUE = Contract("core.api.platform:Queue")
STREAM = Contract("core.api.platform:Stream")
UPLOADS = Contract("core.api.platform:Uploads")
WEIGHT_TENSOR = Contract("core.api.weights:WeightTensor")


class Handed:
    """Remembers which types fit; an object of a type that does costs one look.

    Args:
        owner: Kind, name, distribution and version of the plugin that hands the objects out.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._fit: set[tuple[Contract, type]] = set()

    def fit(self, what: str, value: T, contract: Contract) -> T:
        """Return an object that fits.

        Args:
            what: The method that handed it out.

        Raises:
            PluginError: CORE-P160, with every method that is missing or cannot be called as core calls it.
        """
        key = (contract, type(value))
        if key not in self._fit:
            wrong = misfits_of(contract, value)
            if wrong:
                kind, protocol = type(value).__name__, contract.protocol.partition(":")[2]
                raise PluginError(
                    "CORE-P160",
                    f"{self.owner}: {what} handed out a {kind}, which does not fit {protocol}: {'; '.join(wrong)}.",
                    hint="Report it to the plugin's author.",
                )
            self._fit.add(key)
        return value

    def ask(self, what: str, contract: Contract, function: Callable[..., T], *arguments: object) -> T:
        """Call `what` and return what it hands out.

        Raises:
            PluginError: As `fit`; CORE-P108, it raised an error without a code.
        """
        try:
            value = function(*arguments)
        except (CoreError, RequestError, MemoryError):
            raise
        except Exception as error:
            raise PluginError("CORE-P108", f"{self.owner}: {what} raised {describe(error)}.") from error
        return self.fit(what, value, contract)
