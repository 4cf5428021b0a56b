"""Whole runs: their options, folder, log, checkpoints, and how one is put together."""
