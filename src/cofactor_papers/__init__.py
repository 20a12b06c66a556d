"""Experiments of five papers: what each declares (``*.toml``), and the code that only a reproduction needs.

Nothing here is part of the library: noise without a guarantee, printed orders that fail, baselines as papers run them.
"""
