"""An optimiser of one's own: the arrays that it keeps, and a rule.     mpirun -n 2 python own_optimizer.py

Or from the command line: mgwfbp train lenet --plugin own_optimizer.py --optimizer lion:beta2=0.98 --lr 1e-4
"""

import mgwfbp as mg


@mg.optimizer("lion")
class Lion(mg.Optimizer):
    """w ← w − lr · (sign(c) + weight_decay · w), c between m and g (Chen et al. 2023)."""

    slots = ("m",)

    def __init__(self, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
        super().__init__(lr)
        self.beta1, self.beta2, self.weight_decay = beta1, beta2, weight_decay

    def rule(self, lr, w, g, m):
        """Each element alone: so any bucket, and any rank's part of it, can be updated by itself."""
        sign = self.kernels.xp.sign(self.beta1 * m + (1 - self.beta1) * g)
        w -= lr * (sign + self.weight_decay * w)
        m *= self.beta2
        m += (1 - self.beta2) * g


if __name__ == "__main__":
    hashes = {}
    for schedule in ("wfbp", "single", "sharded"):  # the schedule never changes the weights
        data = mg.load("synthetic:28x28x1x10", seed=1)
        trainer = mg.Trainer(mg.models.mlp(), data, Lion(lr=1e-4), schedule=schedule, batch_size=16)
        summary = trainer.fit(epochs=1, iterations=20)
        hashes[schedule] = set(summary["parameters_sha256"])
    if trainer.world.rank == 0:
        print(summary, f"{len(set.union(*hashes.values()))} set of weights under {len(hashes)} schedules", sep="\n")
