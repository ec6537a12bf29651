"""The chosen plugins that participants call: of kinds that plugins define, and of core's that a participant drives."""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from core.api.descriptors import ParticipantSpec
from core.api.errors import PluginError
from core.api.kinds import AskChosen, Chosen, Kind
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig
from core.plugins.active import ActivePlugins, enter
from core.plugins.kinds import KINDS, PARTICIPANT
from core.plugins.plan import PlannedPlugin

LOADERS = "core.weight_loaders"
DRIVEN = tuple(group for group, kind in KINDS.items() if kind.driver == PARTICIPANT.group)
"""Kinds of core's whose plugins are participants' to call."""


class DrivenPlugins:
    """Makes the plugins that participants ask for, once each.

    Args:
        tokenizer: Returns the model's tokenizer.
    """

    def __init__(self, config: EngineConfig, active: ActivePlugins, tokenizer: Callable[[], Tokenizer]) -> None:
        self._config, self._active, self._tokenizer = config, active, tokenizer

    def asked_by(self, planned: PlannedPlugin, spec: ParticipantSpec) -> AskChosen:
        """Return how a participant asks. Raises `PluginError` CORE-P132 for kinds that nobody drives."""
        for group in spec.drives:
            if group not in DRIVEN:
                text = f"participant {planned.owner} cannot drive {group!r}: {', '.join(DRIVEN)} can be driven."
                raise PluginError("CORE-P132", text)
        return partial(self._asked, frozenset(spec.drives))

    def of(self, group: str) -> Sequence[Chosen]:
        """Return the chosen plugins of a kind that plugins define, or that participants drive."""
        return self._active.kept(group, self._made) if group in DRIVEN else self._active.chosen(group)

    def dumps(self, chosen: Chosen) -> str:
        """Return a plugin of this engine as one line of text, for `core.api.load_chosen`."""
        return written(self._config, chosen.spec.group, chosen.name)

    def _asked(self, drives: frozenset[str], kind: Kind | str) -> Sequence[Chosen]:
        group = kind if isinstance(kind, str) else kind.group
        return self.of(group) if group in drives else self._active.chosen(kind)

    def _made(self, planned: PlannedPlugin) -> object:
        context = pkgutil.resolve_name(KINDS[planned.group].context)
        given = context(
            vocab_size=self._config.shape.vocab_size, tokenizer=self._tokenizer, options=dict(planned.options)
        )
        made: object = self._active.make(planned, given)
        return made


def tokenizer_of(config: EngineConfig, active: ActivePlugins) -> Callable[[], Tokenizer]:
    """Return what reads the model's tokenizer, once."""
    path = Path(config.checkpoint.path)
    return cache(lambda: active.new_of(LOADERS).tokenizer(path))


def written(config: EngineConfig, group: str, name: str) -> str:
    """Return one plugin of a configuration's plan as one line of text, for `core.api.load_chosen`."""
    return f"{__name__}:reopened {json.dumps([group, name, config.model_dump_json()])}"


def reopened(content: str) -> Chosen:
    """Return the plugin that `written` named, made in this process.

    Raises:
        PluginError: CORE-P301, the plan has no such plugin; or as `enter`.
    """
    group, name, text = json.loads(content)
    config = EngineConfig.received(text)
    needed = tuple(one for one in config.plan.drivers if one.group == LOADERS or (one.group, one.name) == (group, name))
    active = enter(config.plan.model_copy(update={"drivers": needed, "hooks": ()}))
    active.planned(group)
    tokenizer = tokenizer_of(config, active)
    if group in DRIVEN:
        tokenizer()  # before the process bounds itself, and not in the first call
    return DrivenPlugins(config, active, tokenizer).of(group)[0]
