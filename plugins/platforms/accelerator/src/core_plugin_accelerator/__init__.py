"""Common parts of accelerator platforms. Importing this package imports no torch; `platform` and what it uses does."""

from core_plugin_accelerator.build import TorchBuild, torch_build
from core_plugin_accelerator.cards import Card, Fact, absent, found
from core_plugin_accelerator.preferences import points_of
from core_plugin_accelerator.visible import Hidden, visible

__all__ = ["Card", "Fact", "Hidden", "TorchBuild", "absent", "found", "points_of", "torch_build", "visible"]
