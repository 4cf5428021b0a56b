"""Normalisation: by the batch's statistics, and by the neighbouring channels."""

from __future__ import annotations

from mgwfbp.kernels import Array
from mgwfbp.net.layers.initial import constant
from mgwfbp.net.layers.layer import Layer, Shape, Step, Tensor


class BatchNorm2d(Layer):
    """y = γ · (x − μ) / √(σ² + ε) + β, each channel its own (Ioffe and Szegedy 2015).

    x is (batch, height, width, channels) or (batch, channels). In training μ and σ² are those of this rank's part of
    the batch (each rank its own, as in DDP and Caffe), and the running ones move towards them by `momentum`, the
    variance unbiased, as torch has it; otherwise, and where the layer is frozen, the running ones are used.
    """

    gamma: Array
    d_gamma: Array
    beta: Array
    d_beta: Array
    running_mean: Array
    running_var: Array

    def __init__(self, *, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon

    def connect(self, *shapes: Shape) -> Shape:
        """The shape stays."""
        (shape,) = shapes
        channels = (shape[-1],)
        self.parameters = [Tensor("gamma", channels, constant(1.0)), Tensor("beta", channels, constant(0.0))]
        self.state = [Tensor("running_mean", channels, constant(0.0)), Tensor("running_var", channels, constant(1.0))]
        return shape

    relu = False  # set where a ReLU follows and was fused into this layer (net/fuse.py)
    deferred = False  # set where an Add follows that calls `normalised` itself; forward then hands on x

    def forward(self, x: Array, step: Step) -> Array:
        """Normalise by the batch's statistics in training, by the running ones otherwise."""
        k = self.kernels
        if step.training and not self.frozen:
            self.mean, variance = k.channel_moments(x)
            count = x.size // x.shape[-1]
            self.running_mean += self.momentum * (self.mean - self.running_mean)
            self.running_var += self.momentum * (variance * (count / max(1, count - 1)) - self.running_var)
        else:
            self.mean, variance = self.running_mean, self.running_var
        self.inverse_std = 1.0 / k.xp.sqrt(variance + self.epsilon)
        self.x = x
        self.y = x if self.deferred else self.normalised(None, self.relu)
        return self.y

    def normalised(self, more: Array | None, relu: bool) -> Array:
        """y of the last forward, plus `more`, and max(…, 0) of it with `relu`, in one pass."""
        return self.kernels.batch_norm(self.x, self.mean, self.inverse_std, self.gamma, self.beta, more, relu)

    def backward_parameters(self, dy: Array) -> None:
        """dγ = Σ dy·x̂, dβ = Σ dy, over all axes but the channels; x̂ is the normalised x."""
        self.sum_dy, self.sum_dy_x = self.kernels.batch_norm_sums(
            self.x, self.y, dy, self.mean, self.inverse_std, self.relu
        )
        self.d_gamma[...], self.d_beta[...] = self.sum_dy_x, self.sum_dy

    def backward_input(self, dy: Array) -> Array:
        """dx = γ/√(σ²+ε) · (dy − mean(dy) − x̂ · mean(dy·x̂)): the means are dβ and dγ over the number of elements.

        Not from the gradient views: by now the comm thread may be adding the other ranks' sums into them. Frozen, μ
        and σ² do not depend on x, and the means are left out.
        """
        scale, count = self.gamma * self.inverse_std, dy.size // dy.shape[-1]
        if self.frozen:
            means = (self.kernels.xp.zeros_like(self.gamma),) * 2
        else:
            means = self.sum_dy / count, self.sum_dy_x / count
        return self.kernels.batch_norm_gradient(
            self.x, self.y, dy, self.mean, self.inverse_std, scale, *means, self.relu
        )


class LRN(Layer):
    """Local response normalisation across channels, Caffe's (Krizhevsky et al. 2012).

    y_c = x_c / (k + alpha/size · Σ of x² over the `size` channels around c)^beta; x is (batch, height, width, c).
    """

    def __init__(self, size: int = 5, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.need(size >= 1 and size % 2 == 1, "an odd number of channels", size)
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Array, step: Step) -> Array:
        """Divide by a power of the neighbourhood's mean square."""
        self.x = x
        self.y, self.scale = self.kernels.lrn(x, self.size, self.alpha, self.beta, self.k)
        return self.y

    def backward_input(self, dy: Array) -> Array:
        """Through x itself, and through each neighbourhood that holds it."""
        return self.kernels.lrn_gradient(self.x, self.y, self.scale, dy, self.size, self.alpha, self.beta)
