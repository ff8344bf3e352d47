"""Helpers for policies in Python, beside the bindings that componentize-py generates.

A component is a snapshot of the interpreter's memory after the import of the program. It has no operating system: no files, environment,
clock or random numbers; a call that needs one of them traps.
"""

import gc
from functools import wraps

from componentize_py_types import Err
from wit_world.imports import log


def told(call):
    """Logs an exception, which would not be visible otherwise, before it ends the instance. `Err` is a result and passes unchanged."""

    @wraps(call)
    def telling(*arguments):
        try:
            return call(*arguments)
        except Err:
            raise
        except Exception as error:
            log.write(log.Level.WARN, f"{type(error).__name__}: {error}{where(error)}")
            raise

    return telling


def where(error):
    """Files and lines from which an exception came, the last call first. Python's own `traceback` would make the component 3 % larger."""
    frames = []
    frame = error.__traceback__.tb_next
    while frame:
        frames.append(f" at {frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}")
        frame = frame.tb_next
    return "".join(reversed(frames))


def tidy():
    """Makes the component about 2 MB smaller: fills memory that the import has freed with zeros, which the snapshot omits.

    Call it last, after all imports.
    """
    gc.collect()
    held = []
    for size, count in (16384, 128), (4096, 512), (1024, 2048):
        held.extend(bytearray(size) for _ in range(count))
