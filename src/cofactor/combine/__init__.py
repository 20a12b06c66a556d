"""Combination: match the components of several factors and merge them into one."""
