"""The fake device, run by the code that runs accelerators."""
