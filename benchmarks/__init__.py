"""Measurements: each file is a script that prints ratios from one run."""
