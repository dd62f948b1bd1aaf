"""Published runs on real GPUs, rebuilt as programs that memlab records."""
