"""The GPU kernel set: our CUDA kernels, cuBLAS, and cuDNN's convolutions, on CuPy arrays."""
