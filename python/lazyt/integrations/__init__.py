"""For libraries that choose devices from a list of their own: one module for each, named after it."""
