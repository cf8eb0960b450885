"""The same mathematics, compiled for the CPU (numba). Each kernel is proven equal to plain code by a test."""

from divmf.engine.threads import govern_numba

govern_numba()
