"""Core's version, for the parts of core; everybody else reads `core.__version__`."""

__version__ = "0.1.0"
