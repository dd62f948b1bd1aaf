"""The card's memory as the driver hands it out: a limit and a count."""


class Driver:
    """Counts what the allocator holds of the card, and hands out addresses, each higher than the last."""

    def __init__(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self.reserved = 0
        self.peak_reserved = 0
        self._next_address = 0

    def has(self, size: int) -> bool:
        """Say whether `size` more bytes fit below the limit."""
        return self.limit_bytes is None or self.reserved + size <= self.limit_bytes

    def take(self, size: int) -> bool:
        """Reserve `size` bytes; say whether they were there."""
        if not self.has(size):
            return False
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def give_back(self, size: int) -> None:
        """Return `size` bytes to the card."""
        self.reserved -= size

    def addresses(self, size: int) -> int:
        """Return the start of `size` addresses that nothing used before."""
        start = self._next_address
        self._next_address += size
        return start
