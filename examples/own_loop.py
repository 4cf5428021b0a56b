"""A training loop of one's own: five lines an iteration.     mpirun -n 2 python own_loop.py

All ranks get rank 0's weights; the loss is a mean over the samples of all ranks, so the learning rate means the same at
any number of ranks.
"""

import mgwfbp as mg

world = mg.World()
data = mg.load("synthetic:28x28x1x10", seed=1)
net = mg.models.lenet(data.shape, data.classes).allocate(seed=world.rank)  # other weights on each rank, at first

with mg.exchange(world, net, mg.SGD(lr=0.01, momentum=0.9), "bucket:256kB") as exchange:
    for batch in mg.batches(data, 64, epochs=1, rank=world.rank, ranks=world.size):
        images, labels = batch.load()
        loss, right = net.forward(images, labels, batch.step, batch.size, exchange.before_layer)
        exchange.begin()
        net.backward(exchange.gradient_ready)
        exchange.finish()

loss, accuracy = mg.evaluate(world, net, data)
if world.rank == 0:
    print(f"on {world.size} rank(s): accuracy {accuracy:.3f}, loss {loss:.4f}")
