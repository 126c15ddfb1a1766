"""Shared by the commands: flags, help, progress, tables, speed."""
