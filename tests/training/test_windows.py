"""Windows cover each epoch exactly once, and hold the same samples however they are cut."""

import math
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import Values, custom

from memlab.training.window import Window, windows

SIZES = st.integers(1, 5)


def numbers(window: Window) -> list[float]:
    return [float(value) for batch in window.micro_batches for value in batch[0]]


def sizes(window: Window) -> list[int]:
    return [len(batch[0]) for batch in window.micro_batches]


@settings(max_examples=60)
@given(samples=st.integers(1, 40), micro=SIZES, k=SIZES, world=st.integers(1, 3), seed=st.integers(0, 9))
def test_every_sample_comes_once_an_epoch(samples: int, micro: int, k: int, world: int, seed: int) -> None:
    workload = Values(range(samples))
    plan = custom(micro_batch_size=micro, gradient_accumulation_steps=k, world_size=world, seed=seed)
    an_epoch = math.ceil(samples / plan.global_batch_size)

    ranks = [list(islice(windows(workload, plan, rank), 2 * an_epoch)) for rank in range(world)]

    for epoch in range(2):
        inside = slice(epoch * an_epoch, (epoch + 1) * an_epoch)
        seen = [number for rank in ranks for window in rank[inside] for number in numbers(window)]
        assert sorted(seen) == list(range(samples))
        assert all(window.epoch == epoch for rank in ranks for window in rank[inside])
    for parts in zip(*ranks, strict=True):
        assert sum(map(len, map(numbers, parts))) == parts[0].samples


@settings(max_examples=40)
@given(samples=st.integers(1, 50), micro=st.sampled_from([1, 2, 3, 4, 6, 12]), seed=st.integers(0, 9))
def test_equal_global_batches_hold_equal_samples(samples: int, micro: int, seed: int) -> None:
    workload = Values(range(samples))
    whole = custom(micro_batch_size=12, seed=seed)
    split = custom(micro_batch_size=micro, gradient_accumulation_steps=12 // micro, seed=seed)

    pairs = zip(islice(windows(workload, whole), 9), islice(windows(workload, split), 9), strict=True)

    assert all(numbers(one) == numbers(other) for one, other in pairs)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_hold_the_samples_of_one(world: int) -> None:
    workload = Values(range(31))
    alone = custom(micro_batch_size=6, gradient_accumulation_steps=2)
    shared = custom(micro_batch_size=6 // world, gradient_accumulation_steps=2, world_size=world)

    expected = [sorted(numbers(window)) for window in islice(windows(workload, alone), 6)]
    ranks = [islice(windows(workload, shared, rank), 6) for rank in range(world)]

    assert [sorted(sum(map(numbers, parts), [])) for parts in zip(*ranks, strict=True)] == expected


@pytest.mark.parametrize(
    ("batches", "k", "expected"), [(7, 4, [4, 3, 4, 3]), (3, 4, [3, 3, 3]), (8, 4, [4, 4, 4])]
)
def test_the_tail_of_an_epoch_is_a_short_window(batches: int, k: int, expected: list[int]) -> None:
    plan = custom(micro_batch_size=2, gradient_accumulation_steps=k)

    found = [len(window.micro_batches) for window in windows_of(plan, 2 * batches, len(expected))]

    assert found == expected


def test_the_last_micro_batch_may_be_short() -> None:
    plan = custom(micro_batch_size=4, gradient_accumulation_steps=2)

    assert [sizes(window) for window in windows_of(plan, 13, 3)] == [[4, 4], [4, 1], [4, 4]]


def test_epochs_are_shuffled_each_in_its_own_way_by_the_seed() -> None:
    first, second = (numbers(window) for window in windows_of(custom(micro_batch_size=30), 30, 2))
    again, _ = (numbers(window) for window in windows_of(custom(micro_batch_size=30), 30, 2))
    other, _ = (numbers(window) for window in windows_of(custom(micro_batch_size=30, seed=1), 30, 2))

    assert first == again and first != second and first != other and first != sorted(first)


def test_data_is_made_when_its_window_comes() -> None:
    made = []

    class Watched(Values):
        def batch(self, indices: list[int]) -> tuple:
            made.append(len(indices))
            return super().batch(indices)

    stream = windows(Watched(range(100)), custom(micro_batch_size=2, gradient_accumulation_steps=3))
    assert made == []
    next(stream)
    assert made == [2, 2, 2]


def windows_of(plan, samples: int, count: int) -> list[Window]:
    return list(islice(windows(Values(range(samples)), plan), count))
