"""Does this MPI take device memory? Tried in a process of its own (child.py), because an MPI that does not may end it:

    python -m mgwfbp.comm.gpu_check DEVICE

Prints a JSON object with "gpu", "driver", and "works": whether messages of device memory arrived.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Send device memory to itself, and try the three collectives of training, blocking or not, on it."""
    import cupy

    from mgwfbp.comm.mpi import MPI, start

    start()
    device = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    cupy.cuda.Device(device).use()
    cupy.cuda.Stream(non_blocking=True).use()
    properties = cupy.cuda.runtime.getDeviceProperties(device)
    about = {"gpu": properties["name"].decode(), "driver": cupy.cuda.runtime.driverGetVersion()}
    print(json.dumps({**about, "works": False}), flush=True)  # what is known if the next lines end the process
    comm, works = MPI.COMM_SELF, True
    for count in (64, 1 << 16):
        sent, received = cupy.arange(count, dtype=cupy.float32), cupy.zeros(count, cupy.float32)
        places = [count], [0]
        for send in (
            lambda s, r: comm.Sendrecv(s, 0, recvbuf=r, source=0),
            lambda s, r: comm.Allreduce(s, r),
            lambda s, r: comm.Reduce_scatter(s, r, [count]),  # noqa: B023  called before `count` changes
            lambda s, r: comm.Allgatherv(s, [r, places]),  # noqa: B023
            lambda s, r: comm.Iallreduce(s, r).Wait(),
            lambda s, r: comm.Ireduce_scatter(s, r, [count]).Wait(),  # noqa: B023
            lambda s, r: comm.Iallgatherv(s, [r, places]).Wait(),  # noqa: B023
        ):
            received[...] = 0
            cupy.cuda.get_current_stream().synchronize()
            send(sent, received)
            works = works and bool((received == sent).all())
    print(json.dumps({**about, "works": works}), flush=True)


if __name__ == "__main__":
    main()
