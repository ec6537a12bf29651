"""Tokens of callers that sing are odd and even by turns: which comes next depends on the one in flight."""

import numpy as np

from core.api import AllowedTokens, Participant


class Choir(Participant):
    def __init__(self, setup):
        super().__init__(setup)
        self._words = -(-setup.vocab_size // 32)
        self._last = {}  # row -> parity of its last token

    def run(self, request):
        if request.caller.user == "sings":
            self._last.setdefault(request.row, 0)

    def plan(self, plan):
        if any(row in self._last for row in plan.rows[plan.samples].tolist()):
            plan.late.append(self.name)

    def late(self, plan, alive):
        rows = [row for row in plan.rows[plan.samples & alive].tolist() if row in self._last]
        # 0x55555555 allows even tokens, 0xAAAAAAAA odd ones.
        masks = [np.full(self._words, (0xAAAAAAAA, 0x55555555)[self._last[row]], np.uint32) for row in rows]
        bits = np.array(masks, np.uint32).reshape(len(rows), self._words)
        return AllowedTokens(np.array(rows, np.int32), bits.view(np.int32))

    def settle(self, requests, tokens):
        for request, token in zip(requests, tokens.tolist(), strict=True):
            if request is not None and request.row in self._last:
                self._last[request.row] = token % 2
        return {}

    def finish(self, request):
        self._last.pop(request.row, None)
