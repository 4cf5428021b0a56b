"""A net: layers with explicit backward passes, joined to a graph, their parameters and gradients in two flat arrays."""

from mgwfbp.net import layers
from mgwfbp.net.arena import ALIGNMENT, Arena, LayerSpec, to_host
from mgwfbp.net.fuse import fuse
from mgwfbp.net.net import Net, Node, Place
from mgwfbp.net.weights import at_places, begin_with, head_layers, tensors

__all__ = [
    "ALIGNMENT",
    "Arena",
    "LayerSpec",
    "Net",
    "Node",
    "Place",
    "at_places",
    "begin_with",
    "fuse",
    "head_layers",
    "layers",
    "tensors",
    "to_host",
]
