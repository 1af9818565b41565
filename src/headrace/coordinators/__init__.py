"""Coordinators as pure state machines: their input is requests and the time, their output actions and records.

Pure: no clock, no IO, no randomness. Begin with `runtime`, the interface between a coordinator and its runtime, then
`groups`, the first coordinator.
"""
