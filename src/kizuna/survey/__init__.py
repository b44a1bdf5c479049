"""What lies on the server, held against what the catalogue declares."""
