"""Engine side: keeps one block more than the window needs."""

import numpy as np


class RecentBlocks:
    def __init__(self, specs, block_size):
        self.window = max(spec.window for spec in specs)
        self.block_size = block_size

    def dead_blocks(self, computed):
        return np.maximum((computed - self.window) // self.block_size - 1, 0)
