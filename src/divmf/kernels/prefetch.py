"""Ask the machine for memory before it is needed: rows far apart are then on their way while others are worked on."""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from divmf.engine.arrays import Array

AHEAD = 16  # rows to ask for ahead: less, and they are not there in time; more, and they are gone again
LINE = 64  # bytes that come at once


@intrinsic
def _ask(_typing: Any, array: Any, offset: Any) -> Any:
    """Ask for the memory at so many bytes from the beginning of an array; its values are not read."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        position = builder.gep(builder.bitcast(data, byte), [arguments[1]])
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(ask, [position, number(0), number(3), number(1)])  # to read, into the nearest cache, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@njit(cache=True, inline="always")
def prefetch(table: Array, row: int) -> None:
    """Ask for a row of a table that lies row after row in memory."""
    size = table.strides[0]
    for position in range(row * size, (row + 1) * size, LINE):
        _ask(table, position)  # type: ignore[call-arg]
