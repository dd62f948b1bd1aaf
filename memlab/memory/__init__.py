"""Where memory goes: the meter of live storages and the CUDA allocator's own figures."""
