"""Two-dimensional convolution."""

from __future__ import annotations

from mgwfbp.kernels import Array, Pair
from mgwfbp.net.layers.initial import constant, he_normal
from mgwfbp.net.layers.layer import Initial, Layer, Shape, Step, Tensor, output_size, pair


class Conv2d(Layer):
    """y[n,i,j,o] = Σ over u,v,c of x[n, i·s+u−p, j·s+v−p, c] · W[u,v,c,o] + b[o].

    x is (batch, height, width, in), W (kernel height, kernel width, in / groups, out), b (out,). With `groups` > 1 the
    channels are split and each group of outputs sees its own group of inputs. `initial` is W's filler; He normal by
    default. b starts at `bias_value`.
    """

    weight: Array
    d_weight: Array
    bias: Array
    d_bias: Array

    def __init__(
        self,
        out: int,
        kernel: int | Pair,
        *,
        stride: int | Pair = 1,
        pad: int | Pair = 0,
        groups: int = 1,
        bias: bool = True,
        initial: Initial | None = None,
        bias_value: float = 0.0,
    ) -> None:
        super().__init__()
        self.out, self.groups, self.has_bias = out, groups, bias
        self.initial, self.bias_value = initial, bias_value
        self.kernel, self.stride, self.pad = pair(kernel), pair(stride), pair(pad)
        least = min(out, groups, *self.kernel, *self.stride, *(pad + 1 for pad in self.pad))
        self.need(
            least >= 1,
            "sizes, strides and groups of at least 1, padding of at least 0",
            (out, kernel, stride, pad, groups),
        )

    def connect(self, *shapes: Shape) -> Shape:
        """(height, width, in) → (height', width', out)."""
        (shape,) = shapes
        size = output_size(self, shape, self.kernel, self.stride, self.pad)
        channels = shape[2]
        self.need(
            channels % self.groups == 0 and self.out % self.groups == 0,
            f"input and output channels that divide by its {self.groups} groups",
            f"{channels} and {self.out}",
        )
        w_shape = (*self.kernel, channels // self.groups, self.out)
        fan_in = w_shape[0] * w_shape[1] * w_shape[2]
        self.parameters = [Tensor("weight", w_shape, self.initial or he_normal(fan_in))]
        if self.has_bias:
            self.parameters.append(Tensor("bias", (self.out,), constant(self.bias_value)))
        return (*size, self.out)

    def forward(self, x: Array, step: Step) -> Array:
        """Convolve, add the bias."""
        self.x = x
        bias = self.bias if self.has_bias else None
        return self.kernels.conv2d(x, self.weight, bias, self.stride, self.pad, self.groups)

    def backward_parameters(self, dy: Array) -> None:
        """dW: correlate x with dy; db: Σ of dy over batch, height and width."""
        self.kernels.conv2d_weight_gradient(self.x, dy, self.d_weight, self.stride, self.pad, self.groups)
        if self.has_bias:
            self.d_bias[...] = self.kernels.channel_sums(dy)

    def backward_input(self, dy: Array) -> Array:
        """dx: convolve dy with the flipped weight."""
        return self.kernels.conv2d_input_gradient(dy, self.weight, self.x.shape, self.stride, self.pad, self.groups)
