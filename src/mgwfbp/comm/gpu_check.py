"""Does this MPI take device memory? Run in a process of its own, because one that does not may end it:

    python -m mgwfbp.comm.gpu_check

Prints a JSON object with "gpu", "driver", and "works": whether messages of device memory arrived.
"""

from __future__ import annotations

import json


def main() -> None:
    """Send device memory to itself and reduce it, and look at what came."""
    import cupy

    from mgwfbp.comm.mpi import MPI, start

    start()
    sent, received = cupy.arange(1 << 16, dtype=cupy.float32), cupy.zeros(1 << 16, cupy.float32)
    cupy.cuda.get_current_stream().synchronize()
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    about = {"gpu": properties["name"].decode(), "driver": cupy.cuda.runtime.driverGetVersion()}
    print(json.dumps({**about, "works": False}), flush=True)  # what is known if the next lines end the process
    MPI.COMM_SELF.Sendrecv(sent, 0, recvbuf=received, source=0)
    arrived = bool((received == sent).all())
    received[...] = 0
    MPI.COMM_SELF.Allreduce(sent, received)
    print(json.dumps({**about, "works": arrived and bool((received == sent).all())}), flush=True)


if __name__ == "__main__":
    main()
