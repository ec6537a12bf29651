"""Which plugins one start may use: what is installed, plugin files, the allow-list and the disabled ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.errors import ConfigError
from core.plugins.catalog import AllowList, Catalogue
from core.plugins.files import open_files
from core.plugins.kinds import every_kind
from core.plugins.plan import PlannedFile

if TYPE_CHECKING:
    from core.config.resolved import SelectOptions

ALL, NONE = "all", "none"


def open_scope(select: SelectOptions, installed: Catalogue | None = None) -> tuple[Catalogue, list[PlannedFile]]:
    """Return the catalogue that `select` allows, and the plugin files it loaded.

    `plugins` lists what may take part. Whatever it says, a plugin takes part that a selection option names
    (`--platform cpu`), or that a plugin file brings; `disable_plugin` outweighs both.

    - `all`, or nothing, the default: every installed plugin.
    - `a,b`: these, as `core.plugins.entry.matches` takes them.
    - `none`: no other plugin; no hook module is imported. A kind that no option chooses (model sources) has none.

    Raises:
        ConfigError: CORE-C140, `all` or `none` together with other names.
        PluginError: A plugin file cannot be used.
    """
    catalogue = Catalogue.scan() if installed is None else installed
    files, entries = open_files(select.plugin_file)
    return limited(select, catalogue.including(entries)), files


def limited(select: SelectOptions, catalogue: Catalogue) -> Catalogue:
    """Return what `select` leaves of a catalogue that has the plugin files' entries already. Raises CORE-C140."""
    catalogue = catalogue.without(select.disable_plugin)
    names = list(dict.fromkeys(select.plugins))
    if len(names) > 1 and {ALL, NONE} & set(names):
        text = f"--plugins {','.join(names)} says two things: all and none stand alone."
        raise ConfigError("CORE-C140", text, hint="Give all, none, or a list of plugins.")
    if names in ([], [ALL]):
        return catalogue
    return catalogue.limited(AllowList(tuple(name for name in names if name != NONE), _asked(select)))


def _asked(select: SelectOptions) -> dict[str, tuple[str, ...]]:
    """Return what the selection options name, per group."""
    asked: dict[str, tuple[str, ...]] = {}
    for group, kind in every_kind().items():
        values = [getattr(select, option) for option in kind.options]
        texts = [text for value in values for text in ([value] if isinstance(value, str) else value or [])]
        # A kernel is asked for with its operation: OP=NAME.
        asked[group] = tuple(n.strip().rpartition("=")[2] for text in texts for n in text.split(",") if n.strip())
    return asked
