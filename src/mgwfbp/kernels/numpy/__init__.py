"""The primitives' bodies in pure NumPy, by topic; `mgwfbp.kernels.base` joins them to the reference set."""
