"""Routes of plugins: declared before the engine starts, bound once it runs, answered with core's limits."""
