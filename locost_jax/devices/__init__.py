"""Meshes, shardings, memory and peak FLOP/s of the devices."""
