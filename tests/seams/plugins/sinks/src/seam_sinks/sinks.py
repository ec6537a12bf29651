TOLD = []


class Memory:
    def __init__(self, options):
        TOLD.append(("options", dict(options)))

    def record(self, stats):
        TOLD.append(("stats", stats))

    def finished(self, request):
        TOLD.append(("finished", request))

    def close(self):
        TOLD.append(("close", None))


class Broken:
    def __init__(self, options): ...

    def record(self, stats):
        raise RuntimeError("record")

    finished = record

    def close(self):
        raise RuntimeError("close")
