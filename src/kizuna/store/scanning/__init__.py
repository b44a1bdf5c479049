"""Going through what is on the server, in steps that nobody else notices."""

from kizuna.store.scanning.families import batches_of_names, glob_of, names_in, names_of_all
from kizuna.store.scanning.globs import Wanted
from kizuna.store.scanning.members import members, raw_members
from kizuna.store.scanning.scan import Scan

__all__ = ["Scan", "Wanted", "batches_of_names", "glob_of", "members", "names_in", "names_of_all", "raw_members"]
