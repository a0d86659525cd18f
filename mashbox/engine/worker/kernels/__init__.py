"""Compiled kernels of the fast engine."""
