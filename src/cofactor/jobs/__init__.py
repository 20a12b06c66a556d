"""Runs over files: the one pipeline, what it is told, and what it writes."""
