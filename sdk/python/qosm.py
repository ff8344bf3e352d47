"""What a policy in Python wants besides the bindings that componentize-py generates.

A component is a picture of the interpreter's memory after the program has been imported. There is no operating system behind it: no
files, no environment, no time and no chance; what would ask for them is a trap.
"""

import gc
from functools import wraps

from componentize_py_types import Err
from wit_world.imports import log


def told(call):
    """Logs what a call raises, which is nowhere to be seen otherwise, and lets it end the instance. `Err` is an answer, and goes through."""

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
    """Makes the component some 2 MB smaller: fills memory that importing has left free with zeros, of which no picture is kept.

    To be called last, where the program has been imported as a whole.
    """
    gc.collect()
    held = []
    for size, count in (16384, 128), (4096, 512), (1024, 2048):
        held.extend(bytearray(size) for _ in range(count))
