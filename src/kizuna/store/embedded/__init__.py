"""The Valkey that comes along. Nothing is loaded here: the keeper is a program of its own, and a small one."""
