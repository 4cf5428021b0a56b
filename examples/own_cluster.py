"""A cluster of one's own, on paper and played.     mpirun -n 2 python own_cluster.py

Or from the command line: mgwfbp plan k80-googlenet --network a=50us,b=0.1ns
                          mgwfbp simulate k80-googlenet --network ring:alpha=5us,beta=0.1ns,gamma=0.05ns --nodes 8,64
"""

import mgwfbp as mg

ALPHA, BETA, GAMMA = 20e-6, 0.8e-9, 0.2e-9  # seconds a hop, seconds a byte sent, seconds a byte added


def fat_tree(nodes, a_switch=20e-6):
    """What an all-reduce costs: a ring, and a switch more to cross for every factor of 16 nodes."""
    levels = 1 + (nodes > 16) + (nodes > 256)
    share = (nodes - 1) / nodes
    return mg.AffineCost(2 * (nodes - 1) * ALPHA + levels * a_switch, share * (2 * BETA + GAMMA))


if __name__ == "__main__":
    world, work = mg.World(), mg.workload("k80-googlenet")
    lines = []
    for nodes in (8, 64, 512):
        times = {name: mg.plan(work, fat_tree(nodes), name).iteration_s for name in ("wfbp", "optimal", "pipelined")}
        lines.append(f"{nodes:4} nodes: " + ", ".join(f"{name} {s * 1e3:.1f} ms" for name, s in times.items()))
    data = mg.load("synthetic:28x28x1x10", seed=1)  # and a net trained with messages that take as long
    trainer = mg.Trainer(mg.models.lenet(), data, mg.SGD(lr=0.01), world=world, network=fat_tree(64))
    summary = trainer.fit(epochs=1, iterations=20)
    if world.rank == 0:
        print(*lines, summary, sep="\n")
