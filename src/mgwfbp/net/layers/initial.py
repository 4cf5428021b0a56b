"""Initial values of tensors: functions from (random generator, shape) to a float64 array."""

from __future__ import annotations

from math import sqrt

import numpy as np

from mgwfbp.net.layers.layer import Initial, Shape


def constant(value: float) -> Initial:
    """Every element is `value`."""
    return lambda rng, shape: np.full(shape, value)


def he_normal(fan_in: int) -> Initial:
    """Normal with variance 2 / fan_in, for layers before a ReLU (He et al. 2015)."""
    return lambda rng, shape: rng.normal(0.0, sqrt(2.0 / fan_in), shape)


def xavier_uniform(fan_in: int) -> Initial:
    """Uniform in ±√(3 / fan_in): Caffe's "xavier" filler (after Glorot and Bengio 2010)."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        return rng.uniform(-sqrt(3.0 / fan_in), sqrt(3.0 / fan_in), shape)

    return draw


def normal(std: float) -> Initial:
    """Normal with standard deviation `std`: Caffe's "gaussian" filler."""
    return lambda rng, shape: rng.normal(0.0, std, shape)
