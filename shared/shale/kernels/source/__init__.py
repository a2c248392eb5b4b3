"""Sources of the kernels, in the part of Python that numba compiles.  Imported only to compile them."""
