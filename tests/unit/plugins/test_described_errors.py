"""Exceptions of plugins as one line."""

from core.plugins.drivers import describe


def test_an_exception_that_was_raised_from_itself_has_an_end():
    error = ValueError("scale 3")
    error.__cause__ = error
    assert describe(error).startswith("ValueError: scale 3")


def test_the_innermost_cause_is_said():
    outer = RuntimeError("loading failed")
    outer.__cause__ = KeyError("absmax")
    assert describe(outer).startswith("RuntimeError: loading failed, caused by KeyError: 'absmax'")
