"""Storages that change their size while they live."""

import pytest
import torch
from programs import n_model

from memlab.memory.meter import Meter
from memlab.trace import CATEGORIES


@pytest.mark.parametrize("way", ["resize_", "storage", "set_", "out"])
def test_a_resized_storage_is_counted_by_its_new_size(way) -> None:
    with Meter() as meter:
        x = torch.ones(10)
        match way:
            case "resize_":
                x.resize_(1000)
            case "storage":  # no operation shows this
                x.untyped_storage().resize_(4000)
            case "set_":
                x.set_(torch.ones(1000))
            case "out":
                torch.cat([torch.ones(500), torch.ones(500)], out=x.resize_(0))
        meter.mark("backward")
        assert sum(meter.trace.end) == 4000
    assert x.untyped_storage().nbytes() == 4000


@pytest.mark.parametrize("size", [0, 4000])
def test_a_storage_that_was_resized_dies_once(size: int) -> None:
    with Meter() as meter:
        x = torch.ones(10)
        x.untyped_storage().resize_(size)
        del x
    assert meter.trace.end == (0,) * len(CATEGORIES)


def test_a_storage_that_is_emptied_and_filled_again_keeps_its_category() -> None:
    model = n_model(1, 8)
    storage = next(model.parameters()).untyped_storage()
    size = storage.nbytes()
    with Meter(model) as meter:
        storage.resize_(0)
        storage.resize_(size)
    trace = meter.trace
    assert trace.delta_bytes.tolist() == [-size, size]
    assert trace.category.tolist() == [CATEGORIES.index("parameters")] * 2
