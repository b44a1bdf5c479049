"""A server as people have it without asking for one, and what data takes of its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kizuna.settings import EmbeddedSettings
from kizuna.store.embedded.setup import configuration
from kizuna.testing.servers import ServerProcess

_THAT_MATTER = (
    "appendonly",
    "appendfsync",
    "notify-keyspace-events",
    "hash-max-ziplist-value",
    "hash-max-ziplist-entries",
)


@contextmanager
def embedded_server() -> Iterator[ServerProcess]:
    """A server with those options of the embedded one that decide on speed and memory."""
    options = dict(line.split(" ", 1) for line in configuration(EmbeddedSettings(), Path()).splitlines())
    with ServerProcess(config={name: options[name] for name in _THAT_MATTER}) as server:
        yield server


def memory_of(server: ServerProcess) -> int:
    """What the data takes, its index included; what connections and the log of writes have in their buffers is not."""
    memory = server.info("memory")
    return int(memory["used_memory"]) - int(memory["mem_clients_normal"]) - int(memory["mem_aof_buffer"])


def main_thread_s(server: ServerProcess) -> float:
    """CPU seconds of the thread that runs commands, to the nanosecond."""
    return int(Path(f"/proc/{server.pid}/schedstat").read_text().split()[0]) / 1e9
