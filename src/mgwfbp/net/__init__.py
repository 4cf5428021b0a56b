"""A net: layers with explicit backward passes, joined to a graph, their parameters and gradients in two flat arrays."""

from mgwfbp.net import layers
from mgwfbp.net.arena import ALIGNMENT, Arena, LayerSpec, to_host
from mgwfbp.net.fuse import fuse
from mgwfbp.net.net import Net, Node

__all__ = ["ALIGNMENT", "Arena", "LayerSpec", "Net", "Node", "fuse", "layers", "to_host"]
