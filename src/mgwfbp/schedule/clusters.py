"""All-reduce costs of clusters: five algorithms as functions of the node count, and the paper's clusters.

α is the start-up time of one hop in seconds, β seconds a byte sent, γ seconds a byte reduced, n the number of nodes.
The formulas are table 2 of the MG-WFBP paper (INFOCOM 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2

from mgwfbp.errors import UserError
from mgwfbp.schedule.cost import AffineCost

# algorithm(nodes, alpha, beta, gamma) -> cost
Algorithm = Callable[[int, float, float, float], AffineCost]


def binary_tree(n: int, alpha: float, beta: float, gamma: float) -> AffineCost:
    """Reduce to a root and broadcast from it along a binary tree."""
    return AffineCost(2 * alpha * log2(n), (2 * beta + gamma) * log2(n))


def recursive_doubling(n: int, alpha: float, beta: float, gamma: float) -> AffineCost:
    """Exchange everything with partners at distance 1, 2, 4, …"""
    return AffineCost(alpha * log2(n), (beta + gamma) * log2(n))


def recursive_halving_doubling(n: int, alpha: float, beta: float, gamma: float) -> AffineCost:
    """Reduce-scatter by halving, all-gather by doubling (Rabenseifner)."""
    return AffineCost(2 * alpha * log2(n), (1 - 1 / n) * (2 * beta + gamma))


def double_binary_trees(n: int, alpha: float, beta: float, gamma: float) -> AffineCost:
    """Two pipelined trees, each with half of the data (NCCL's)."""
    return AffineCost(2 * alpha * log2(n), beta + gamma if n > 1 else 0.0)


def ring(n: int, alpha: float, beta: float, gamma: float) -> AffineCost:
    """Reduce-scatter and all-gather around a ring, n − 1 hops each."""
    return AffineCost(2 * (n - 1) * alpha, 2 * (n - 1) / n * beta + (n - 1) / n * gamma)


ALGORITHMS: dict[str, Algorithm] = {
    "binary-tree": binary_tree,
    "recursive-doubling": recursive_doubling,
    "recursive-halving-doubling": recursive_halving_doubling,
    "double-binary-trees": double_binary_trees,
    "ring": ring,
}


def k80_10gbe(nodes: int) -> AffineCost:
    """The ring of the authors' simulator: α = 45.25 µs, 9 Gibit/s at 1.2 protocol overhead, γ = 2.5 ns/B."""
    return ring(nodes, 45.25e-6, 1.2 / (9.0 * 2**30 / 8), 2.5e-9)


# Fitted a (s), b (s/B) of the V100 clusters in the journal version (TPDS 2021), by node count.
_V100_10GBE = {2: (2.55e-6, 9.84e-11), 4: (4.204e-5, 2.059e-10), 8: (5.230e-4, 8.571e-10), 16: (9.081e-4, 7.396e-10)}
_V100_56GIB = {2: (2.55e-6, 9.84e-11), 4: (4.204e-5, 2.059e-10), 8: (9.754e-5, 3.057e-10), 16: (2.358e-4, 4.059e-10)}


def _fitted(name: str, table: dict[int, tuple[float, float]]) -> Callable[[int], AffineCost]:
    def cost(nodes: int) -> AffineCost:
        if nodes not in table:
            known = ", ".join(str(n) for n in table)
            raise UserError(f"network {name}: measured for {known} nodes only, not for {nodes}")
        return AffineCost(*table[nodes])

    return cost


PRESETS: dict[str, Callable[[int], AffineCost]] = {
    "k80-10gbe": k80_10gbe,
    "v100-10gbe": _fitted("v100-10gbe", _V100_10GBE),
    "v100-56gib": _fitted("v100-56gib", _V100_56GIB),
}
