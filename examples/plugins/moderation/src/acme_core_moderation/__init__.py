"""Moderators: a kind of plugin, and the routes that ask them."""
