"""The version, which ranks compare before they begin."""

__version__ = "0.1.0"
