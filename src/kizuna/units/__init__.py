"""Units: programs that know each other by name, and talk over the keys of one server."""

from kizuna.units.paths import Path, build_path, parse_path

__all__ = ["Path", "build_path", "parse_path"]
