"""Does the GPU set work on a card, cuDNN with it? Asked in a process of its own:

    python -m mgwfbp.kernels.gpu.probe DEVICE

Compiles the kernels, computes a small convolution, and prints a JSON object with "works" and "about": the versions, or
why convolutions are matrix products.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Load the set on the device of the command line."""
    import cupy

    from mgwfbp.kernels.gpu.cudnn_set import CudnnSet
    from mgwfbp.kernels.gpu.load import load

    cupy.cuda.Device(int(sys.argv[1])).use()
    found = load()
    x, weight = found.xp.ones((2, 8, 8, 16), "float32"), found.xp.ones((3, 3, 16, 16), "float32")
    y = found.conv2d(x, weight, None, (1, 1), (1, 1), 1).get()
    if y[0, 4, 4, 0] != 9 * 16 or y[1, 0, 7, 5] != 4 * 16:
        raise RuntimeError(f"a convolution of ones gave {y[0, 4, 4, 0]} and {y[1, 0, 7, 5]}, not 144 and 64")
    about = found.device.about if isinstance(found, CudnnSet) else found.note
    print(json.dumps({"works": found.note is None, "about": f"CuPy {cupy.__version__}, {about}"}))


if __name__ == "__main__":
    main()
