"""A policy of one's own: where to cut.     mpirun -n 2 python own_policy.py

Or from the command line: mgwfbp plan k80-googlenet --network k80-10gbe:64 --plugin own_policy.py --schedule thirds
"""

import mgwfbp as mg


@mg.policy("thirds")
def thirds(workload, cost):
    """Three messages with about the same number of bytes each."""
    sizes = workload.prefix_nbytes()
    cuts = [next(layer for layer, size in enumerate(sizes) if size >= part * sizes[-1] / 3) for part in (0, 1, 2)]
    cuts = sorted({min(cut, len(workload.layers) - 1) for cut in cuts})
    return mg.schedule_from_cuts("thirds", cuts, len(workload.layers))


if __name__ == "__main__":
    work, wire = mg.workload("k80-googlenet"), mg.network("k80-10gbe:64")
    trainer = mg.Trainer(mg.models.lenet(), mg.load("synthetic:28x28x1x10"), mg.SGD(lr=0.01), schedule="thirds")
    summary = trainer.fit(epochs=1, iterations=20)
    if trainer.world.rank == 0:
        for name in ("wfbp", "thirds", "optimal"):
            print(f"{name:8} {mg.plan(work, wire, name).iteration_s * 1e3:6.1f} ms an iteration on 64 nodes")
        print(summary)
