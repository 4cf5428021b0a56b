"""A net of one's own: layers joined to a graph.     mpirun -n 2 python own_model.py

Or from the command line: mgwfbp train twoways --plugin own_model.py --data synthetic:16x16x3x10
"""

import mgwfbp as mg


@mg.model("twoways")
def twoways(input_shape=(16, 16, 3), classes=10):
    """Two branches, of 3×3 and of 1×1 convolutions, side by side."""
    layers, net = mg.layers, mg.Net("twoways", input_shape)
    x = net.chain(
        net.input, stem=layers.Conv2d(16, 3, pad=1, bias=False), norm=layers.BatchNorm2d(), relu=layers.ReLU()
    )
    wide = net.chain(x, wide=layers.Conv2d(16, 3, pad=1), wide_relu=layers.ReLU())
    narrow = net.chain(x, narrow=layers.Conv2d(8, 1), narrow_relu=layers.ReLU())
    both = net.add("both", layers.Concat(), wide, narrow)
    return net.finish(net.chain(both, pool=layers.GlobalAvgPool(), fc=layers.Linear(classes)))


if __name__ == "__main__":
    data = mg.load("synthetic:16x16x3x10", seed=1)
    trainer = mg.Trainer(twoways(data.shape, data.classes), data, mg.Adam(lr=1e-2), lr="fixed", batch_size=16)
    summary = trainer.fit(epochs=1)
    if trainer.world.rank == 0:
        print(f"{len(trainer.net.learnable)} layers learn: {', '.join(trainer.net.arena.names)}", summary, sep="\n")
