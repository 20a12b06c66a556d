"""Runs on files: a configuration goes in, a run folder comes out."""
