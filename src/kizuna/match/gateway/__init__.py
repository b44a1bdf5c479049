"""HTTP for games that do not speak gRPC: JSON as Open Match's gateway serves it, and Connect, which minimatch's clients
speak, with gRPC-Web for browsers, all on one port."""

from kizuna.match.gateway.gateway import Gateway

__all__ = ["Gateway"]
