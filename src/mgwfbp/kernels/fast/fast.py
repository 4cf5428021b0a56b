"""The fast set itself, and its loading: every loop is compiled (or read from numba's cache) before the first use."""

from __future__ import annotations

from functools import cache

import numpy as np

from mgwfbp.kernels.fast import conv, onednn, pool
from mgwfbp.kernels.fast.elements import FastElements
from mgwfbp.kernels.fast.norm import FastBatchNorm


class FastKernels(conv.FastConvolutions, pool.FastPooling, FastBatchNorm, FastElements):
    """float32 by oneDNN and numba, whose threads it uses; everything else as `Kernels` does it."""

    name = "fast"


@cache
def load() -> FastKernels:
    """The set, ready to be used. Raises OSError or RuntimeError where oneDNN cannot be loaded."""
    onednn.onednn()
    k = FastKernels()
    x = np.ones((2, 3, 4, 8), np.float32)
    channel = np.ones(8, np.float32)
    k.channel_moments(x)
    y = k.batch_norm(x, channel, channel, channel, channel, None, True)
    k.batch_norm(x, channel, channel, channel, channel, x, True)
    k.batch_norm_sums(x, y, x, channel, channel, True)
    k.batch_norm_gradient(x, y, x, channel, channel, channel, channel, channel, True)
    k.relu_gradient(k.relu(x), k.add(x, x, True))
    wide = np.ones((1, 3, 3, conv.CHANNELS), np.float32)
    k.conv2d_weight_gradient(wide, wide, np.empty((3, 3, *wide.shape[3:] * 2), np.float32), (1, 1), (1, 1), 1)
    one, none = (1, 1), (0, 0)
    share = np.ones((3, 4, 1), np.float32)
    k.max_pool_gradient(x, k.max_pool(x, one, one, none, (3, 4)), x, one, one, none)
    k.average_pool_gradient(k.average_pool(x, one, one, none, share), x.shape, one, one, none, share)
    k.lrn_gradient(x, *k.lrn(x, 5, 1.0, pool.CAFFE_BETA, 1.0), x, 5, 1.0, pool.CAFFE_BETA)
    k.sgd_update(x.ravel(), y.ravel(), x.ravel(), 0.1, 0.9, 0.1, True)
    return k
