"""Recurrences over the tokens of each row, with states in slots."""
