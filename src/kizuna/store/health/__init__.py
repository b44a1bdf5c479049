"""How the server is, and what is wrong with it."""
