from core_testing.fakedevice.platform import FakePlatform


class Eager(FakePlatform):
    """The fake device without graphs."""

    def __init__(self):
        super().__init__()
        self.graphs = None
