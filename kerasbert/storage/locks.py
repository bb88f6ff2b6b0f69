"""Locks between processes, and between threads, on an open file or folder: they end with the process, however that ends."""

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

AVAILABLE = fcntl is not None  # else nothing is ever locked


def lock(handle: int, shared: bool = False) -> bool | None:
    """Lock a descriptor until it is closed, without waiting.

    Args:
        shared: bool, whether others may have it too that share it.

    Returns:
        bool, whether it is locked: False where another has it; None where the system, or the file system, has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
