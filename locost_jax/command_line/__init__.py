"""Shared by the commands: flags, progress lines, versions, allocator."""
