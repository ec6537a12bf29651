"""The options on a command line, as commands of plugins take them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from core.api.descriptors import LogitsSpec
from core.api.sampling import SamplingField
from core.cli.engine_flags import add_engine_flags, engine_options
from core.config.flags import SCOPE, FlagValue, add_option_flags, add_plugin_flag, add_some_flags, to_argv
from core.config.load import LoadedOptions, load_options
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue
from core.plugins.drivers import load_descriptors
from core.plugins.kinds import LOGITS

if TYPE_CHECKING:
    from core.api.given_options import GivenOptions


class Loaded:
    """Options with the source of each; `GivenOptions`."""

    def __init__(self, loaded: LoadedOptions) -> None:
        self.loaded = loaded

    def value(self, path: str) -> Any:
        """Return an option by its path. Raises `KeyError`."""
        section, _, name = path.partition(".")
        try:
            return getattr(getattr(self.loaded.options, section), name)
        except AttributeError:
            raise KeyError(path) from None

    def source(self, path: str) -> str:
        """Return where an option's value is from."""
        return self.loaded.sources[path]

    def flags(self, *, secrets: bool = True) -> list[str]:
        """Return flags that rebuild what differs from the defaults."""
        return to_argv(self.loaded.options, secrets=secrets)

    def changed(self, values: Mapping[str, Any]) -> Loaded:
        """Return these options with other values, by path."""
        options = self.loaded.options
        for path, value in values.items():
            section, _, name = path.partition(".")
            changed = getattr(options, section).model_copy(update={name: value})
            options = options.model_copy(update={section: changed})
        return Loaded(LoadedOptions(options, self.loaded.sources))


class Flags:
    """Flags of the options; `OptionFlags`. Parsers are those that core has made."""

    def add(self, parser: argparse.ArgumentParser, *, positional_model: bool = False) -> None:
        """Add the flag of every option, `--config` and `--opt`."""
        add_option_flags(cast(CoreParser, parser), positional_model=positional_model)

    def add_alone(self, parser: argparse.ArgumentParser, *, positional_model: bool = False) -> None:
        """Add the same for a command that runs a model for itself alone."""
        own = cast(CoreParser, parser)
        own.drop_help()
        add_engine_flags(own, positional_model=positional_model)

    def add_some(self, parser: argparse.ArgumentParser, paths: Sequence[str], *, of_plugins: bool = False) -> None:
        """Add the flags of some options."""
        if of_plugins:
            add_plugin_flag(parser)
        text = "As for `core serve`; also in the environment and the file."
        add_some_flags(cast(CoreParser, parser), (*paths, *SCOPE), "configuration", text)

    def add_rest(self, parser: argparse.ArgumentParser, dest: str) -> None:
        """Hand what follows a word `--` over as a list."""
        cast(CoreParser, parser).keep_rest(dest)

    def given(self, args: argparse.Namespace) -> dict[str, str]:
        """Return the flag that brought each option which the command line sets."""
        return {path: value.flag for path, value in vars(args).items() if isinstance(value, FlagValue)}

    def load(self, args: argparse.Namespace) -> Loaded:
        """Return the options."""
        return Loaded(load_options(args))

    def load_alone(self, args: argparse.Namespace) -> Loaded:
        """Return the options; refuse an address."""
        return Loaded(engine_options(args))

    def sampling_fields(self) -> list[tuple[str, SamplingField]]:
        """Return the sampling parameters that installed logits processors declare, each with its processor's name."""
        found, _ = load_descriptors(Catalogue.scan().entries(LOGITS.group), usable=False)
        return [(one.descriptor.name, field) for one in found for field in one.spec(LogitsSpec).fields]

    def of_model(self, model: str, flag: str) -> Loaded:
        """Return the options for a model of which nothing else is given on the command line."""
        return Loaded(load_options(argparse.Namespace(**{"model.model": FlagValue(flag, model)})))


def loaded_of(options: GivenOptions) -> LoadedOptions:
    """Return the options that a command gives back to core; they are core's own, whose flags alone make them."""
    return cast(Loaded, options).loaded
