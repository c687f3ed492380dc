"""Turns settings into runs."""
