"""Experiments of papers, run again: declared in TOML, run cell by cell, judged claim by claim."""
