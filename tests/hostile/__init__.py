"""Damaged and hostile files: thousands of seeded mutations of a good file, each opened in a process of its own.

A format is a function of `subjects.py` (path -> answer) and a test that makes mutated copies and calls `fuzz.run`.
"""
