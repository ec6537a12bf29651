"""The variables that a device's libraries read, set before the libraries are loaded."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping

logger = logging.getLogger(__name__)


def prepare_environment(variables: Mapping[str, str]) -> None:
    """Set what a platform wants before it is probed in the process that computes: a probe may load its libraries.

    Where torch is here already nothing is set; if the platform is chosen, `apply_environment` says so.
    """
    if "torch" not in sys.modules:
        os.environ.update(_missing(variables))


def apply_environment(variables: Mapping[str, str]) -> None:
    """Set what the platform wants in this process; what is set already stays.

    Libraries read such variables once, when they are loaded, and most come with torch. Where torch is here already, as
    in a script that imported it before it made an engine, they come too late: one warning names them.
    """
    missing = _missing(variables)
    os.environ.update(missing)  # also too late: processes started from here on, and engines made later, find them
    if missing and "torch" in sys.modules:
        logger.warning(
            "CORE-P150 torch was imported before the engine started, so its threads run without %s, which cost"
            " processor time while they wait. Make the engine (LLM) before anything imports torch, or start Python"
            " with these variables set.",
            " ".join(f"{name}={value}" for name, value in missing.items()),
        )


def _missing(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in os.environ}
