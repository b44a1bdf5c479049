"""What lies on the server: listed, measured, backed up, restored and cleaned without being in the server's way."""
