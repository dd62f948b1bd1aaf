"""The one training loop: windows of micro-batches, and the choices that its step takes as objects."""
