# SPDX-License-Identifier: MIT
"""Nothing is leaked: loads, plans and calls end with the memory that they began with."""
import gc
import resource

import numpy as np
import pytest

import fmoe

resource_page = resource.getpagesize()


def resident():
    """Bytes of memory that this process has now."""
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource_page


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    rng = np.random.default_rng(0)
    sizes = {"W_enc": (32, 64), "gate": (200, 32), "W_cond": (32, 200), "W_dec": (64, 32)}
    arrays = {name: rng.normal(size=s).astype(np.float32) for name, s in sizes.items()}
    layer = fmoe.from_arrays(arrays, active=4, metadata={"activation": "gelu"})
    file = tmp_path_factory.mktemp("layers") / "small.safetensors"
    layer.save(file)
    return file


def test_a_thousand_loads_and_calls(small):
    x = np.ones((4, 32), np.float32)

    def use():
        layer = fmoe.load(small)
        forward = layer.compile(4, threads=1)
        with pytest.raises(fmoe.ShapeError):
            forward(x[:, :3])
        return forward(x), layer.coefficients(x), fmoe.read(small)["gate"]

    for _ in range(200):
        use()
    gc.collect()
    before = resident()
    for _ in range(1000):
        use()
    gc.collect()
    # One layer has 70 KB, so a leak of one in each round would take 70 MB.
    assert resident() - before < 8e6


def test_no_compiled_class_has_a_method_that_a_package_gives_every_object():
    """nnsight 0.8.1 gives every object a method `save`, so classes of nanobind 3.1 leave that name alone: fmoe is imported behind it."""
    classes = [c for c in vars(fmoe._core).values() if isinstance(c, type)]
    assert len(classes) > 5
    assert not [c for c in classes if "save" in vars(c)]
