"""Answers all four questions of the scheduler."""

AT_ONCE, CHUNK = 2, 5
ASKED = {"admit": [], "chunk": [], "victim": [], "callers": []}


class Gentle:
    def key(self, request):
        ASKED["callers"].append(request.caller)
        return (request.arrival,)

    def victim(self, running):
        ASKED["victim"].append([request.num_prompt for request in running])
        return min(range(len(running)), key=lambda index: running[index].num_prompt)

    def may_admit(self, request, state):
        ASKED["admit"].append((state.running, state.waiting, state.blocks_free, state.budget))
        return state.running < AT_ONCE

    def chunk(self, request, budget):
        ASKED["chunk"].append((request.num_computed, budget))
        return CHUNK
