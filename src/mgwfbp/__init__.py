"""mgwfbp: data-parallel SGD that you can read."""

__version__ = "0.1.0"
