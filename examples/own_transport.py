"""A transport of one's own: how the sum of a slice is made.     mpirun -n 2 python own_transport.py

Or from the command line: mpirun -n 2 mgwfbp train lenet --plugin own_transport.py --transport ring
"""

import numpy as np

import mgwfbp as mg


class Ring(mg.HostTransport):
    """Sums by passing parts around a ring: n − 1 steps to add them up, n − 1 to spread the sums."""

    name = "ring"

    def all_reduce(self, array):
        rank, size = self.comm.Get_rank(), self.comm.Get_size()
        edges = [len(array) * part // size for part in range(size + 1)]
        parts = [array[edges[part] : edges[part + 1]] for part in range(size)]
        right, left = (rank + 1) % size, (rank - 1) % size
        for step in range(2 * (size - 1)):
            out, into = parts[(rank - step) % size], parts[(rank - step - 1) % size]
            received = np.empty_like(into)
            self.comm.Sendrecv(out, right, recvbuf=received, source=left)
            into[...] = into + received if step < size - 1 else received


@mg.transport("ring")
def ring(comm, xp, elements):
    """`comm` is the transport's own communicator; `xp` is NumPy here."""
    return Ring(comm)


if __name__ == "__main__":
    data = mg.load("synthetic:28x28x1x10", seed=1)
    trainer = mg.Trainer(mg.models.lenet(), data, mg.SGD(lr=0.01), transport="ring", batch_size=16)
    summary = trainer.fit(epochs=1, iterations=20)
    if trainer.world.rank == 0:
        print(summary, f"equal weights: {len(set(summary['parameters_sha256'])) == 1}", sep="\n")
