"""Does the GPU set work on a card, cuDNN with it? Asked in a process of its own:

    python -m mgwfbp.kernels.gpu.probe DEVICE

Compiles the kernels, builds a plan for a small convolution, and prints a JSON object with "works" and "about": the
versions, or why convolutions are matrix products.
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
    about = found.device.about if isinstance(found, CudnnSet) else found.note
    print(json.dumps({"works": found.note is None, "about": f"CuPy {cupy.__version__}, {about}"}))


if __name__ == "__main__":
    main()
