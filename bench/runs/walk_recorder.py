"""Records which functions a process of the daemon calls, for :mod:`bench.runs.walk`. Standard library only.

Each process loads it before its own code and records while the first byte of the switch is not 0. A record is a line
with the number of the phase, the kind of the call, the module and the function.
"""

import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_PACKAGES = ("api", "logring", "store", "supervisor")
_ROOT = str(Path(__file__).parents[2]) + os.sep
_ENCODERS = {"encode", "pack", "pack_into"}
_DECODERS = {"decode", "convert", "unpack", "unpack_from", "iter_unpack"}
_STANDARD = {"json/encoder.py": "encode", "json/decoder.py": "decode"}
"""Python functions of the standard library's JSON module, by file, that code a whole value."""
SWITCH = "switch"


class _Recorder:
    def __init__(self, directory: str) -> None:
        self._directory = directory
        with open(os.path.join(directory, SWITCH), "rb") as file:
            self._switch = mmap.mmap(file.fileno(), 1, prot=mmap.PROT_READ)
        self._files: dict[int, int] = {}
        self._seen: set[tuple[int, str]] = set()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        phase = self._switch[0]
        if not phase:
            return
        if event == "call":
            code = frame.f_code
            path = code.co_filename
            module = _module(path)
            if module is not None:
                self._note(phase, f"call {module} {code.co_qualname}", once=code.co_name != "_transaction")
            elif code.co_name == _STANDARD.get(path[-len("json/xxcoder.py") :]):
                self._coded(phase, frame.f_back, f"json.{code.co_name}")
        elif event == "c_call" and (name := arg.__name__) in _ENCODERS | _DECODERS:
            owner = getattr(arg, "__self__", None)
            kind = type(owner).__module__ if owner is not None and not hasattr(owner, "__name__") else arg.__module__
            if kind is not None and kind.split(".")[0] in {"msgspec", "_struct"}:
                self._coded(phase, frame, f"{kind.split('.')[0].strip('_')}.{name}")

    def _coded(self, phase: int, frame: FrameType | None, what: str) -> None:
        while frame is not None and _module(frame.f_code.co_filename) is None:
            frame = frame.f_back
        if frame is not None:
            place = f"{_module(frame.f_code.co_filename)} {frame.f_code.co_qualname}"
            self._note(phase, f"{what} {place}", once=False)

    def _note(self, phase: int, text: str, *, once: bool) -> None:
        pid = os.getpid()
        if once:
            if (phase, text) in self._seen and pid in self._files:
                return
            self._seen.add((phase, text))
        if pid not in self._files:  # a copy of the process gets a file of its own
            self._seen.clear()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._files = {pid: os.open(os.path.join(self._directory, str(pid)), flags, 0o600)}
        os.write(self._files[pid], f"{phase} {text}\n".encode())


def _module(path: str) -> str | None:
    """Return the dotted name of a module of this project; None for other code."""
    if not path.startswith(_ROOT):
        return None
    parts = path[len(_ROOT) :].removesuffix(".py").split(os.sep)
    return ".".join(parts) if parts[0] in _PACKAGES else None


def start(directory: str) -> None:
    """Record in this process, in all threads that it starts, and in its copies."""
    recorder: Callable[[FrameType, str, Any], None] = _Recorder(directory)
    threading.setprofile(recorder)
    sys.setprofile(recorder)


def make_switch(directory: Path) -> mmap.mmap:
    """Return the switch of all processes; its first byte is the present phase, or 0."""
    path = directory / SWITCH
    path.write_bytes(b"\0")
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 1)
