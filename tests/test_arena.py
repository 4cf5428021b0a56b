"""The flat arrays and their views."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mgwfbp.net import ALIGNMENT, Arena, LayerSpec

shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
layers = st.lists(st.lists(shapes, min_size=1, max_size=3), min_size=1, max_size=6)


@given(layers, st.sampled_from([np.float32, np.float64]))
def test_views_tile_the_arena_aligned_and_in_order(tensors, dtype):
    specs = [LayerSpec(f"l{i}", [(f"t{j}", s) for j, s in enumerate(ss)]) for i, ss in enumerate(tensors)]
    arena = Arena(specs, dtype)
    marked = np.zeros(len(arena.parameters), int)
    for place, spec in enumerate(specs):
        views = arena.views(place)
        for name, shape in spec.tensors:
            parameter, gradient = views[name]
            assert parameter.shape == gradient.shape == shape
            parameter[...] = place + 1
            if parameter.size:
                start = (
                    parameter.__array_interface__["data"][0] - arena.parameters.__array_interface__["data"][0]
                ) // (parameter.itemsize)
                assert start % ALIGNMENT == 0
                assert not marked[start : start + parameter.size].any()
                marked[start : start + parameter.size] = 1
        inside = arena.parameters[arena.layer_slices[place]]
        assert (inside == place + 1).sum() == arena.layer_parameters[place]
        assert arena.layer_nbytes[place] == inside.nbytes
    assert arena.slice_of(0, len(specs) - 1) == slice(0, len(arena.parameters))


def test_a_bucket_is_one_slice_and_writes_through():
    arena = Arena([LayerSpec("a", [("w", (3, 5)), ("b", (5,))]), LayerSpec("b", [("w", (70,))])])
    assert arena.layer_slices == [slice(0, 128), slice(128, 256)]
    arena.gradients[arena.slice_of(0, 1)] = 7
    assert (arena.views(1)["w"][1] == 7).all()
    assert arena.slice_of(1, 1) == slice(128, 256)
    assert np.shares_memory(arena.gradients[arena.slice_of(0, 1)], arena.gradients)


def test_the_description_tells_layouts_apart():
    one = Arena([LayerSpec("a", [("w", (3, 5))])])
    assert one.description() == ["a/w (3, 5) float32 at 0"]
    for other in (LayerSpec("b", [("w", (3, 5))]), LayerSpec("a", [("w", (5, 3))])):
        assert Arena([other]).description() != one.description()
    assert Arena([LayerSpec("a", [("w", (3, 5))])], np.float64).description() != one.description()


def test_the_hash_is_of_the_parameters():
    arena = Arena([LayerSpec("a", [("w", (3,))])])
    before = arena.parameters_sha256()
    arena.gradients[0] = 1
    assert arena.parameters_sha256() == before
    arena.parameters[0] = 1
    assert arena.parameters_sha256() != before
