"""Where a device's kernels make other tensors than torch's shape functions say: one small rule for each."""
