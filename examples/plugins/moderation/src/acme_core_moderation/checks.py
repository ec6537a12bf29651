"""What the conformance kit asks of every moderator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from core_testing.conformance import Subject, checks, require

TEXTS = ("", "Hello.", "\u2603" * 1000, "a b " * 20_000, "\x00", "{}")


def scores_are_of_its_categories(subject: Subject) -> None:
    """Whatever the text is, it gives numbers from 0 to 1, of the categories that its descriptor names."""
    moderator, named = subject.impl()(), set(subject.descriptor.to_dict()["categories"])
    for text in TEXTS:
        scores = dict(moderator.look(text))
        require(set(scores) <= named, f"look({text!r:.20}) names {', '.join(sorted(set(scores) - named))}")
        wrong = [value for value in scores.values() if not (isinstance(value, (int, float)) and 0 <= value <= 1)]
        require(not wrong, f"look({text!r:.20}) gives {wrong[:1]}, which is no number from 0 to 1")


def threads_do_not_disturb_each_other(subject: Subject) -> None:
    """In several threads it says of a text what it says alone."""
    moderator = subject.impl()()
    alone = [dict(moderator.look(text)) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        together = [dict(scores) for scores in pool.map(moderator.look, TEXTS * 4)]
    require(together == alone * 4, "it says something else in several threads")


CHECKS = checks(scores_are_of_its_categories, threads_do_not_disturb_each_other)
