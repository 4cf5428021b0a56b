"""All-reduce costs of clusters: five algorithms as functions of the node count.

α is the start-up time of one hop in seconds, β seconds a byte sent, γ seconds a byte reduced, n the number of nodes.
The formulas are table 2 of the MG-WFBP paper (INFOCOM 2019).
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2

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
    scatter = AffineCost(alpha * log2(n), (1 - 1 / n) * (beta + gamma))
    gather = AffineCost(alpha * log2(n), (1 - 1 / n) * beta)
    return AffineCost(2 * alpha * log2(n), (1 - 1 / n) * (2 * beta + gamma), (scatter, gather))


def double_binary_trees(n: int, alpha: float, beta: float, gamma: float) -> AffineCost:
    """Two pipelined trees, each with half of the data (NCCL's)."""
    return AffineCost(2 * alpha * log2(n), beta + gamma if n > 1 else 0.0)


def ring(n: int, alpha: float, beta: float, gamma: float) -> AffineCost:
    """Reduce-scatter and all-gather around a ring, n − 1 hops each."""
    share = (n - 1) / n
    scatter = AffineCost((n - 1) * alpha, share * (beta + gamma))
    gather = AffineCost((n - 1) * alpha, share * beta)
    return AffineCost(2 * (n - 1) * alpha, 2 * share * beta + share * gamma, (scatter, gather))


ALGORITHMS: dict[str, Algorithm] = {
    "binary-tree": binary_tree,
    "recursive-doubling": recursive_doubling,
    "recursive-halving-doubling": recursive_halving_doubling,
    "double-binary-trees": double_binary_trees,
    "ring": ring,
}
