"""Matrix products of the kernel sets, in every storage order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgwfbp.kernels import kernel_set

SIZE = st.integers(1, 20)


@pytest.mark.parametrize("name", ["numpy", "fast"])
@given(m=SIZE, k=SIZE, n=SIZE, flips=st.tuples(st.booleans(), st.booleans()), apart=st.integers(0, 3))
def test_products_of_matrices_and_transposes(name, m, k, n, flips, apart):
    kernels = kernel_set(name, quiet=True)
    rng = np.random.default_rng([m, k, n])
    a, b = (
        rng.standard_normal(shape[::-1] if flip else shape).astype(np.float32)
        for shape, flip in zip(((m, k), (k, n)), flips, strict=True)
    )
    a, b = (matrix.T if flip else matrix for matrix, flip in zip((a, b), flips, strict=True))
    assert np.allclose(kernels.matmul(a, b), a @ b, rtol=1e-4, atol=1e-5)
    wide = np.full((m, n + apart), 7, np.float32)
    kernels.matmul(a, b, wide[:, :n])
    assert np.allclose(wide[:, :n], a @ b, rtol=1e-4, atol=1e-5)
    assert (wide[:, n:] == 7).all()
