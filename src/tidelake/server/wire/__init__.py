"""Read the bytes of wire formats in compiled loops, straight into columns.

May import kernels, dynamic and runtime. Each loop has a plain twin, which defines it and serves until it is compiled.
"""
