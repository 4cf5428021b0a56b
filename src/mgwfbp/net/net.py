"""A net: layers joined into a graph, forward in order, backward in reverse, announcing each finished gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mgwfbp.errors import UserError
from mgwfbp.kernels import Array, Kernels, kernel_set
from mgwfbp.net.arena import Arena, LayerSpec
from mgwfbp.net.layers import Layer, Shape, SoftmaxCrossEntropy, Step, Tensor

WEIGHTS = 1  # keeps this use of the seed apart from the order of samples (2), augmentation (3) and synthetic data (4)


@dataclass(frozen=True)
class Node:
    """A value in the graph: its place and its shape without the batch axis. `Net.add` makes and takes them."""

    index: int
    shape: Shape


class Place(NamedTuple):
    """Where a tensor lies: in which flat array ("parameters", "frozen", "state"), from which element, in what shape."""

    array: str
    start: int
    shape: Shape


class Head(NamedTuple):
    """A loss at the node whose logits it takes, and its weight in the sum of losses."""

    node: int
    loss: SoftmaxCrossEntropy
    weight: float


class Net:
    """A graph of layers that ends in one loss or several.

        net = Net("tiny", (28, 28, 1))
        x = net.add("flat", Flatten(), net.input)
        x = net.add("fc", Linear(10), x)
        net.finish(x)

    Then `allocate` makes the arena. Attributes: `arena`; `learnable`, the layers that own parameters in gradient-ready
    order (layer i's gradient is announced as i); `state`, one flat array of what is not trained (running statistics);
    `frozen`, one of the parameters of frozen layers; `places`, where each tensor lies, by its name "layer.tensor".
    A net knows nothing of ranks. What stands for them is `samples_of_all`: from this rank's number of samples to that
    of the global batch, the same where there is one rank (`mgwfbp.exchange` puts the sum over the ranks here).
    """

    arena: Arena
    kernels: Kernels

    def __init__(self, name: str, input_shape: Shape) -> None:
        self.name = name
        self.input = Node(0, tuple(input_shape))
        self.layers: list[Layer] = []  # layer k makes node k + 1
        self.sources: list[tuple[int, ...]] = []
        self.shapes: list[Shape] = [self.input.shape]  # of node k, without the batch axis
        self.state: Array = None
        self.frozen: Array = None
        self.samples_of_all: Callable[[int], int] = int
        self.last_batch = (0, 0)  # samples of the last forward: here, on all ranks
        self.trained = False  # whether it was ever trained on a sample here, which `state` knows of

    @property
    def allocated(self) -> bool:
        """Whether `allocate` was called."""
        return hasattr(self, "arena")

    def add(self, name: str, layer: Layer, *inputs: Node) -> Node:
        """Join `layer` to the outputs `inputs`; returns its own. Raises UserError for a wrong shape or a name twice."""
        if any(other.name == name for other in self.layers):
            raise UserError(f"net {self.name}: two layers are called {name}")
        layer.name, layer.index = name, len(self.layers)
        shape = layer.connect(*(node.shape for node in inputs))
        self.layers.append(layer)
        self.sources.append(tuple(node.index for node in inputs))
        self.shapes.append(shape)
        return Node(len(self.layers), shape)

    def chain(self, node: Node, **layers: Layer) -> Node:
        """`add` one layer after another, each named by its keyword."""
        for name, layer in layers.items():
            node = self.add(name, layer, node)
        return node

    def finish(
        self, logits: Node, auxiliary: Sequence[tuple[Node, float]] = (), *, label_smoothing: float = 0.0
    ) -> Net:
        """Put the loss behind `logits` (classes,); the graph is then complete. Returns the net itself.

        `auxiliary` heads are (logits, weight): in training their losses are added with their weights (GoogLeNet's).
        """
        self.heads: list[Head] = []
        for node, weight in [*auxiliary, (logits, 1.0)]:
            head = Head(node.index, SoftmaxCrossEntropy(label_smoothing), weight)
            head.loss.name = f"{self.name}/loss{len(self.heads) + 1}"
            head.loss.connect(node.shape)
            head.loss.need(node.shape == logits.shape, f"as many classes as the main head, {logits.shape}", node.shape)
            self.heads.append(head)
        self.classes = logits.shape[0]
        # The nodes that the main head needs: evaluation computes no others.
        self.main = {logits.index}
        for place in reversed(range(logits.index)):
            if place + 1 in self.main:
                self.main.update(self.sources[place])
        return self.freeze()

    def freeze(self, *patterns: str) -> Net:
        """Leave the layers whose names match one of `patterns` ("stage1/*") as they are. Returns the net itself.

        They get no gradient and send none, BatchNorm keeps its running statistics, and backward ends where nothing
        before it learns. Call it before `allocate`. Raises UserError if a pattern matches no layer with parameters, or
        if none is left to train.
        """
        if self.allocated:
            raise UserError(f"net {self.name}: freeze layers before their parameters are allocated")
        owners = [layer for layer in self.layers if layer.parameters]
        for pattern in patterns:
            matching = [layer for layer in owners if fnmatchcase(layer.name, pattern)]
            if not matching:
                names = ", ".join(layer.name for layer in owners)
                raise UserError(f"net {self.name}: no layer with parameters is called {pattern!r}; they are {names}")
            for layer in matching:
                layer.frozen = True
        self.learnable = [layer for layer in reversed(self.layers) if layer.learns]
        if not self.learnable:
            raise UserError(f"net {self.name}: no layer has parameters that may change, there is nothing to train")
        # A node needs a gradient if some layer at or before it learns; the images, and what only reshapes them, do not.
        self.needs_gradient = [False]
        for layer, sources in zip(self.layers, self.sources, strict=True):
            self.needs_gradient.append(layer.learns or any(self.needs_gradient[s] for s in sources))
        return self

    def allocate(self, *, seed: int = 0, dtype: Any = np.float32, kernels: Kernels | None = None) -> Net:
        """Make the arena and the state, bind every layer to its views, fill in initial values. Returns the net.

        A tensor's initial values depend on `seed` and its place only, so every rank and kernel set starts alike.
        """
        self.kernels = kernels or kernel_set()
        xp = self.kernels.xp
        specs = [LayerSpec(layer.name, [(t.name, t.shape) for t in layer.parameters]) for layer in self.learnable]
        self.arena = Arena(specs, dtype, xp)
        self.places = {name: Place("parameters", *place) for name, place in self.arena.places.items()}
        self.frozen = self._flat(
            "frozen", [(layer, t) for layer in self.layers if layer.frozen for t in layer.parameters]
        )
        self.state = self._flat("state", [(layer, tensor) for layer in self.layers for tensor in layer.state])
        for place, layer in enumerate(self.learnable):
            for name, (parameter, gradient) in self.arena.views(place).items():
                setattr(layer, name, parameter)
                setattr(layer, f"d_{name}", gradient)
        for layer in self.layers:
            for number, tensor in enumerate(layer.parameters):
                rng = np.random.default_rng([seed, WEIGHTS, layer.index, number])
                getattr(layer, tensor.name)[...] = xp.asarray(tensor.initial(rng, tensor.shape))
            for tensor in layer.state:
                value = tensor.initial(np.random.default_rng(0), tensor.shape)
                getattr(layer, tensor.name)[...] = xp.asarray(value)
        for layer in [*self.layers, *(head.loss for head in self.heads)]:
            layer.kernels = self.kernels
        return self

    def _flat(self, array: str, owned: Iterable[tuple[Layer, Tensor]]) -> Array:
        """One flat array for the tensors `owned`, of which each layer gets its views; notes their places."""
        views, end = [], 0
        for layer, tensor in owned:
            self.places[f"{layer.name}.{tensor.name}"] = Place(array, end, tensor.shape)
            views.append((layer, tensor, slice(end, end + prod(tensor.shape))))
            end = views[-1][2].stop
        flat = self.kernels.xp.zeros(end, self.arena.parameters.dtype)
        for layer, tensor, part in views:
            setattr(layer, tensor.name, flat[part].reshape(tensor.shape))
        return flat

    def logits(self, images: Array, step: Step, before_layer: Callable[[int], None] | None = None) -> list[Array]:
        """Forward without the losses: (batch, classes) of each head, the main one last (and alone in evaluation).

        `images` is (batch, *input shape); `before_layer` as in `forward`.
        """
        self._check_images(images)
        wanted = [head.node for head in self.heads] if step.training else [self.heads[-1].node]
        computed = [step.training or place + 1 in self.main for place in range(len(self.layers))]
        uses = [0] * (len(self.layers) + 1)  # outputs are dropped after their last use; a layer keeps what it needs
        for sources, needed in zip(self.sources, computed, strict=True):
            for source in sources:
                uses[source] += needed
        values: dict[int, Array] = {0: self.kernels.xp.asarray(images)}
        coming = len(self.learnable)
        for place, (layer, sources) in enumerate(zip(self.layers, self.sources, strict=True)):
            if layer.learns:
                coming -= 1
                if before_layer is not None:
                    before_layer(coming)
            if not computed[place]:
                continue
            inputs = [values[source] for source in sources]
            values[place + 1] = layer.forward(inputs[0] if len(inputs) == 1 else inputs, step)
            for source in sources:
                uses[source] -= 1
                if not uses[source] and source not in wanted:
                    values.pop(source, None)
        return [values[node] for node in wanted]

    def forward(
        self,
        images: Array,
        labels: Array,
        step: Step,
        global_batch: int | None = None,
        before_layer: Callable[[int], None] | None = None,
    ) -> tuple[Array, Array]:
        """(this rank's share of the mean loss over the global batch, the main head's number of right answers).

        `images` is (batch, *input shape) of the net's dtype, `labels` (batch,) of integers; `global_batch` is the
        number of samples on all ranks. Where it is not given, training asks `samples_of_all`, and evaluation takes this
        batch alone. In training the loss is the weighted sum of all heads', in evaluation the main head's. Both results
        are arrays of no dimension: float() and int() of them wait for the device, so take them after backward.
        `before_layer(i)` is called before `learnable[i]` reads its parameters: i = …, 2, 1, 0, the mirror image of
        backward's `on_gradient`. A batch of no samples is fine: its loss is 0, and backward then writes zeros.
        """
        labels = self._checked_labels(labels)
        if global_batch is None:
            global_batch = self.samples_of_all(len(labels)) if step.training else len(labels)
        self.last_batch = (len(labels), global_batch)
        self.trained = self.trained or (step.training and len(labels) > 0)
        if not len(labels):
            self._check_images(images)
            for number in reversed(range(len(self.learnable) if before_layer else 0)):
                before_layer(number)  # type: ignore[misc]
            return 0.0, 0
        logits = self.logits(images, step, before_layer)
        total: Array = 0.0
        correct: Array = 0
        for head, values in zip(self.heads[-len(logits) :], logits, strict=True):
            loss, correct = head.loss.loss(values, labels, global_batch, step.training)
            total += head.weight * loss
        return total, correct

    def backward(self, on_gradient: Callable[[int], None] | None = None) -> None:
        """Write all gradients into the arena, last layer first.

        `on_gradient(i)` is called as soon as the gradients of `learnable[i]` are written, before the layer's own
        input gradient is computed: i = 0, 1, 2, …
        """
        if not self.last_batch[0]:  # this rank has no part in the global batch, but its messages are waited for
            self.arena.gradients[...] = 0
            for number in range(len(self.learnable) if on_gradient else 0):
                on_gradient(number)  # type: ignore[misc]
            return
        gradients: dict[int, Array] = {}
        for head in self.heads:
            gradient = head.loss.gradient()
            gradient = gradient if head.weight == 1 else gradient * head.weight
            gradients[head.node] = gradients[head.node] + gradient if head.node in gradients else gradient
        announced = 0
        for place in reversed(range(len(self.layers))):
            layer, sources = self.layers[place], self.sources[place]
            dy = gradients.pop(place + 1, None)
            if layer.learns:
                if dy is None:  # a branch that leads nowhere
                    self.arena.gradients[self.arena.layer_slices[announced]] = 0
                else:
                    layer.backward_parameters(dy)
                if on_gradient is not None:
                    on_gradient(announced)
                announced += 1
            if dy is None or not any(self.needs_gradient[source] for source in sources):
                continue
            dx = layer.backward_input(dy)
            for source, part in zip(sources, [dx] if len(sources) == 1 else dx, strict=True):
                if not self.needs_gradient[source]:
                    continue
                own = len(sources) == 1 and not self.kernels.xp.may_share_memory(part, dy)
                if source in gradients and own and 0 not in part.strides:  # 0: a view that shows one value many times
                    part += gradients[source]  # in place, as nobody else has it; Add hands one array to all its inputs
                elif source in gradients:
                    part = part + gradients[source]
                gradients[source] = part

    def _checked_labels(self, labels: Array) -> Array:
        if isinstance(labels, np.ndarray) and len(labels) and not 0 <= labels.min() <= labels.max() < self.classes:
            raise UserError(
                f"net {self.name}: labels must be 0..{self.classes - 1}, got {labels.min()}..{labels.max()}"
            )
        return self.kernels.xp.asarray(labels)

    def _check_images(self, images: Array) -> None:
        if tuple(images.shape[1:]) != self.input.shape:
            raise UserError(f"net {self.name}: needs images of {self.input.shape}, got {tuple(images.shape[1:])}")
        if images.dtype != self.arena.parameters.dtype:
            raise UserError(
                f"net {self.name}: needs normalised images of {self.arena.parameters.dtype}, got {images.dtype}; "
                "data.normalised(images) makes them"
            )
