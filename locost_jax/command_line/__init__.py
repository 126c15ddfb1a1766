"""What the commands share: flags, progress lines, versions, allocator."""
