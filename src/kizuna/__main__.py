"""`python -m kizuna` is `kizuna`."""

from kizuna.cli import main

main()
