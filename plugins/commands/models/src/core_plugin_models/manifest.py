"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import CommandSpec

PULL = CommandSpec(
    name="pull",
    impl="core_plugin_models.pull:Pull",
    api=1,
    summary="Fetch a model, so that it can be served at once.",
)
LS = CommandSpec(
    name="ls",
    impl="core_plugin_models.listing:Ls",
    api=1,
    summary="List the models that are on this machine.",
)
SHOW = CommandSpec(
    name="show",
    impl="core_plugin_models.show:Show",
    api=1,
    summary="Describe a model that is on this machine.",
)
RM = CommandSpec(
    name="rm",
    impl="core_plugin_models.remove:Rm",
    api=1,
    summary="Remove a model from the hub's cache.",
)
