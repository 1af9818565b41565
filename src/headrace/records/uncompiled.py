"""What `kernel` asks of the module `cython` when it runs as plain Python and Cython is not installed."""

compiled = False
