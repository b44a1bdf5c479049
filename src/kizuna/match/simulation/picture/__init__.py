"""Charts as PNG files, with nothing but the standard library."""
