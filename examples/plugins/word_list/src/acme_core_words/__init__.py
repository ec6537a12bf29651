"""A moderator that objects to words."""
