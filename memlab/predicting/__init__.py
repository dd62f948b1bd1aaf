"""What a program would need on a card, found without one: its own code on tensors that hold no data."""
