"""Meshes, shardings, memory and peak speed of the devices."""
