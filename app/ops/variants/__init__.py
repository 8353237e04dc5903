"""Compares the variants of a profile by their metrics."""
