"""The chat page: its sources, what builds them, and the bundle that is served."""
