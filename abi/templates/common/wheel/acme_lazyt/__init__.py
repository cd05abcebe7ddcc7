"""Holds a plugin of lazyt, which finds it by an entry point and runs no code of this package."""
