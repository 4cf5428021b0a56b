"""The fast CPU set: convolutions and products by oneDNN, other passes by numba. float32; the rest is NumPy's."""
