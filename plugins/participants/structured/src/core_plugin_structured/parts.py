"""Messages between the halves, and the participant's name."""

from __future__ import annotations

from core.api.participants import AllowedTokens, Parts

NAME = "structured"
PARTS = Parts(late=AllowedTokens)
