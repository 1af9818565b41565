"""A stand-in for the module `cython`, for compiled modules that run as plain Python without Cython installed."""

from contextlib import nullcontext

compiled = False
nogil = nullcontext()
