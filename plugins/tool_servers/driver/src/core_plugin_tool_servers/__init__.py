"""Tool servers for APIs: which may be spoken to, and the connections of one answer. A library of route plugins."""
