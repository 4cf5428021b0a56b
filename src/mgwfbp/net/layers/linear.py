"""Fully connected layer."""

from __future__ import annotations

from mgwfbp.kernels import Array
from mgwfbp.net.layers.initial import constant, he_normal
from mgwfbp.net.layers.layer import Initial, Layer, Shape, Step, Tensor


class Linear(Layer):
    """y = x·W + b.

    x is (batch, in), W (in, out), b (out,), y (batch, out). `initial` is W's filler; He normal by default. b starts at
    `bias_value`.
    """

    weight: Array
    d_weight: Array
    bias: Array
    d_bias: Array

    def __init__(self, out: int, *, initial: Initial | None = None, bias_value: float = 0.0) -> None:
        super().__init__()
        self.out, self.initial, self.bias_value = out, initial, bias_value

    def connect(self, *shapes: Shape) -> Shape:
        """(in,) → (out,)."""
        (shape,) = shapes
        self.need(len(shape) == 1, "a flat input (put Flatten before it)", shape)
        fan_in = shape[0]
        self.parameters = [
            Tensor("weight", (fan_in, self.out), self.initial or he_normal(fan_in)),
            Tensor("bias", (self.out,), constant(self.bias_value)),
        ]
        return (self.out,)

    def forward(self, x: Array, step: Step) -> Array:
        """y = x·W + b."""
        self.x = x
        y = self.kernels.matmul(x, self.weight)
        y += self.bias
        return y

    def backward_parameters(self, dy: Array) -> None:
        """dW = xᵀ·dy, db = Σ over the batch of dy."""
        self.kernels.matmul(self.x.T, dy, self.d_weight)
        self.kernels.xp.sum(dy, axis=0, out=self.d_bias)

    def backward_input(self, dy: Array) -> Array:
        """dx = dy·Wᵀ."""
        return self.kernels.matmul(dy, self.weight.T)
