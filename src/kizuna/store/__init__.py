"""The only folder that knows Redis. Import from its modules; nothing is loaded before it is needed."""
