"""Locks that a fork does not tear: a child would wait for ever for a thread that it does not have.

A process forks when no other thread holds one of these locks, and so in the middle of no answer: what the child gets is whole.
"""

import os
import threading
import weakref

_held: list[threading.RLock] = []  # pyright: ignore[reportInvalidTypeForm]  # by the thread that forks
_adding = threading.Lock()
_locks: list[list[weakref.ref]] = [[], [], []]


def lock(rank: int = 0) -> "threading.RLock":  # pyright: ignore[reportInvalidTypeForm]
    """A lock that a fork waits for.

    Args:
        rank: 0, or higher where it may be taken while a lower one is held: a fork takes them in this order.
    """
    made = threading.RLock()  # reentrant: a model that is collected while its thread forks takes the last one again
    with _adding:
        _locks[rank][:] = [ref for ref in _locks[rank] if ref() is not None]
        _locks[rank].append(weakref.ref(made))
    return made


def _before() -> None:
    _adding.acquire()
    for ref in (ref for refs in _locks for ref in refs):
        if (each := ref()) is not None:
            each.acquire()
            _held.append(each)


def _after() -> None:
    while _held:
        _held.pop().release()
    _adding.release()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
