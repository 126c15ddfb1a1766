"""Finds free ports."""

import socket


def free_port():
  with socket.socket() as free:
    free.bind(('localhost', 0))
    return free.getsockname()[1]
