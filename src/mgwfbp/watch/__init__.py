"""Hooks that keep a run from failing in silence: watchdog, signals, what is not finite, faults on purpose."""
