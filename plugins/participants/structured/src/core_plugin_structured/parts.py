"""What the halves send each other, and what the participant is called."""

from __future__ import annotations

from core.api.participants import AllowedTokens, Parts

NAME = "structured"
PARTS = Parts(late=AllowedTokens)
