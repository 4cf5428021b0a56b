"""Local response normalisation across channels in pure NumPy: the sum over a window is a sum of shifted views."""

from __future__ import annotations

from mgwfbp.kernels.types import Array


class LRN:
    """The two primitives of local response normalisation."""

    def lrn(self, x: Array, size: int, alpha: float, beta: float, k: float) -> tuple[Array, Array]:
        """(y, scale): scale_c = k + alpha/size · Σ of x² over the `size` channels around c; y = x · scale^−beta."""
        scale = _window_sums(x * x, size)
        scale *= alpha / size
        scale += k
        return x * scale**-beta, scale

    def lrn_gradient(self, x: Array, y: Array, scale: Array, dy: Array, size: int, alpha: float, beta: float) -> Array:
        """dL/dx: dy · scale^−beta − 2·alpha·beta/size · x · Σ of dy·y/scale over the channels around."""
        dx = _window_sums(dy * y / scale, size)
        dx *= x
        dx *= -2 * alpha * beta / size
        dx += dy * scale**-beta
        return dx


def _window_sums(values: Array, size: int) -> Array:
    """At each channel the sum over itself and size // 2 neighbours on both sides, as far as there are any."""
    channels = values.shape[-1]
    total = values.copy()
    for shift in range(1, min(size // 2, channels - 1) + 1):
        total[..., shift:] += values[..., : channels - shift]
        total[..., : channels - shift] += values[..., shift:]
    return total
