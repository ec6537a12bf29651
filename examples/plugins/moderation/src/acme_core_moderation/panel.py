"""The chosen moderators together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.api import Chosen, RequestError

if TYPE_CHECKING:
    from acme_core_moderation.contract import Moderator


@dataclass
class Judgement:
    """What all of them say of a text.

    Attributes:
        scores: The highest of each category.
        reasons: What clients are told, by category.
        limit: Score from which on a text is refused.
    """

    scores: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    limit: float = 0.5

    @property
    def against(self) -> list[str]:
        """The categories that it is refused for."""
        return sorted(name for name, score in self.scores.items() if score >= self.limit)


class Panel:
    """Asks every moderator that the user chose.

    Args:
        limit: Score from which on a text is refused.

    Attributes:
        refusals: Texts that were refused, by the category that they were refused for.
    """

    def __init__(self, chosen: Sequence[Chosen], limit: float = 0.5) -> None:
        self._chosen, self._limit = chosen, limit
        self.refusals: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._chosen)

    async def judge(self, text: str) -> Judgement:
        """Return what they say of a text, beside the event loop."""
        return await asyncio.to_thread(self._judge, text)

    async def admit(self, text: str) -> None:
        """Refuse a text that one of them objects to: `RequestError` 400."""
        judged = await self.judge(text)
        if judged.against:
            self.refusals.update(judged.against)
            reasons = [judged.reasons.get(name, name) for name in judged.against]
            raise RequestError(f"The text is refused: {', '.join(reasons)}.", code="content_policy")

    def _judge(self, text: str) -> Judgement:
        judged = Judgement(limit=self._limit)
        for one in self._chosen:
            moderator: Moderator = one.value
            explain = getattr(moderator, "explain", None)
            for name, score in moderator.look(text).items():
                judged.scores[name] = max(score, judged.scores.get(name, 0.0))
                if explain is not None and score >= self._limit:
                    judged.reasons[name] = explain(name)
        return judged
