"""Flags and JSON files into settings that are complete and checked; neither torch nor ray."""
