"""What the compiled modules ask of the module `cython` when they run as plain Python and Cython is not installed."""

from contextlib import nullcontext

compiled = False
nogil = nullcontext()
