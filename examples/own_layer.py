"""A layer of one's own, its backward looked at, and a net that has it.     mpirun -n 2 python own_layer.py

Or from the command line: mgwfbp train swishnet --plugin own_layer.py --data synthetic:28x28x1x10
"""

import mgwfbp as mg


class Swish(mg.layers.Layer):
    """y = x · sigmoid(beta · x), with one beta that is learnt (Ramachandran et al. 2017)."""

    def connect(self, *shapes):
        self.parameters = [mg.layers.Tensor("beta", (1,), mg.layers.constant(1.0))]
        return shapes[0]

    def forward(self, x, step):
        self.x, self.gate = x, 0.5 + 0.5 * self.kernels.xp.tanh(0.5 * self.beta * x)
        return x * self.gate

    def backward_parameters(self, dy):
        self.d_beta[...] = (dy * self.x**2 * self.gate * (1 - self.gate)).sum()

    def backward_input(self, dy):  # must not read d_beta: its message may be on its way
        return dy * (self.gate + self.beta * self.x * self.gate * (1 - self.gate))


@mg.model("swishnet")
def swishnet(input_shape=(28, 28, 1), classes=10):
    layers, net = mg.layers, mg.Net("swishnet", input_shape)
    parts = {"flat": layers.Flatten(), "fc1": layers.Linear(64), "swish": Swish(), "fc2": layers.Linear(classes)}
    return net.finish(net.chain(net.input, **parts))


if __name__ == "__main__":
    errors = mg.check_gradients(Swish(), (5, 7))
    trainer = mg.Trainer(swishnet(), mg.load("synthetic:28x28x1x10"), mg.SGD(lr=0.01, momentum=0.9))
    summary = trainer.fit(epochs=1)
    if trainer.world.rank == 0:
        print(f"largest error of a gradient: {max(errors.values()):.1e}", summary, sep="\n")
