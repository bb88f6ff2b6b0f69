"""What the runtime asks of the operating system: files, memory, forks, the standard error."""
