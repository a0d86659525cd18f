"""How long a test waits for something that must happen."""

PATIENCE = 180.0
"""Seconds. Such a wait ends with the event; its limit only keeps a fault from hanging."""
