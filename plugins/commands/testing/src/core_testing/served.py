"""The server's application over any front end, with routes of plugins: what their tests ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from core.api.descriptors import RouteSpec
from core.api.kinds import AskChosen, nobody
from core.api.routes import RoutePlugin
from core.config.resolved import Options
from core.server.app import create_app
from core.server.interface import ServedLLM
from core.server.plugin_routes.table import RouteTable


def served_app(
    llm: ServedLLM,
    options: Options,
    plugins: Mapping[RouteSpec, RoutePlugin] | None = None,
    *,
    chosen: AskChosen | None = None,
    driven: AskChosen | None = None,
    **given: Any,
) -> FastAPI:
    """Return an application whose route plugins have declared their routes and are bound.

    Args:
        plugins: Descriptor -> plugin.
        chosen: Returns the plugins of a kind that a plugin defines; None: there are none.
        driven: Returns those of a kind of core's that routes drive; None: there are none.
        given: As of `create_app`.
    """
    table = RouteTable(options=options, chosen=chosen or nobody, driven=driven or nobody)
    for spec, plugin in (plugins or {}).items():
        owner = f"'{spec.name}' (tested)"
        plugin.declare(table.registry(spec.name, owner, spec))
        table.plugins.append((owner, plugin))
    app = create_app(llm, options, plugin_routes=table.routes, layers=table.layers, figures=table.figures, **given)
    table.bind(app.state.core)
    return app
