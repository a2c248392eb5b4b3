"""Compiles the kernels to one extension module.  Nothing here is needed at run time."""
