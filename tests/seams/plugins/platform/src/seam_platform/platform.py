from core_plugin_cpu.platform import CPUPlatform

from core.api import GraphFacet

RECORD = []


class GraphBox(CPUPlatform):
    facets = True

    def __init__(self):
        super().__init__()
        self.graphs = Graphs() if self.facets else None
        self.collectives = OneRank() if self.facets else None


class Graphs(GraphFacet):
    """Records what is captured and replayed; a "graph" of a decode step calls the forward pass it captured."""

    def key(self, shape):
        return shape.num_rows if shape.max_query_len == 1 else None

    def capture(self, forward, step):
        RECORD.append(("capture", len(step.token_ids)))
        return Graph(forward, len(step.token_ids))


class Graph:
    def __init__(self, forward, size):
        self.forward, self.size = forward, size

    def replay(self, step):
        RECORD.append(("replay", self.size))
        return self.forward(step)


class OneRank:
    rank, world_size, alignment = 0, 1, 1

    def all_reduce(self, tensor):
        return tensor

    def all_gather(self, tensor, dim):
        return tensor

    def all_to_all(self, tensor, splits):
        return tensor

    def broadcast(self, tensor, source):
        return tensor

    def barrier(self):
        return None
