"""Data-parallel SGD: the loop (loop.py), one step (step.py), the three modes (exchange.py); and what they need."""
