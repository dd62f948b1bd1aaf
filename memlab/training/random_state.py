"""Random numbers of a run, kept apart from those of the program around it."""

import numpy as np
import torch


class RandomState:
    """Torch's generators of the host and of `device`, as the run left them; active inside `with`.

    On the way out the program's own states are back, untouched.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        devices = [torch.device("cpu"), *([device] if device.type == "cuda" else [])]
        self._seed = seed
        self._generators = [*map(_generator, devices)]
        self._states = self._seeded(seed)

    def _seeded(self, seed: int) -> list[torch.Tensor]:
        seed %= 2**63  # torch takes no larger one
        return [torch.Generator(it.device).manual_seed(seed).get_state() for it in self._generators]

    def begin_rank(self, rank: int) -> None:
        """Give ranks other than the first random numbers of their own: masks of dropout must differ."""
        if rank:
            seeds = np.random.SeedSequence((self._seed, rank)).generate_state(1, np.uint64)
            self._states = self._seeded(int(seeds[0]))

    def __enter__(self) -> None:
        self._exchange()

    def __exit__(self, *error: object) -> None:
        self._exchange()

    def _exchange(self) -> None:
        states = self._states
        for place, generator in enumerate(self._generators):  # twice a step: by hand, for speed
            found = generator.get_state()
            generator.set_state(states[place])
            states[place] = found


def _generator(device: torch.device) -> torch.Generator:
    """Return the generator that torch's operations on `device` draw from."""
    if device.type == "cpu":
        return torch.default_generator
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
