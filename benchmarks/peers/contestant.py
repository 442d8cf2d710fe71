# SPDX-License-Identifier: MIT
"""A contestant in Python: it answers the commands of contestant.hpp. A library is a class with

    layer(kind, weights, numbers)  returns a function for `call`, or None if there is no such layer here
    rows(x, dy)                    returns x and dy, of numpy, as the library has what it needs of them
    call(layer, rows)              runs the layer to its end and returns the result as an array of numpy
    run(layer, rows)               only runs it

The result of both passes is y, dx and the gradients with respect to the weights by their names, one after the other.
"""
import sys
import time

import numpy
from safetensors import safe_open

SHORTEST = 0.02


def seconds_of_call(call):
    def many():
        calls, start, spent = 0, time.perf_counter(), 0
        while spent < SHORTEST:
            call()
            calls += 1
            spent = time.perf_counter() - start
        return spent / calls

    first = many()
    return first if first > 0.1 else many()


def read(path):
    with safe_open(path, framework="numpy") as file:
        numbers = {key: float(value) for key, value in (file.metadata() or {}).items()}
        return {name: file.get_tensor(name) for name in file.keys()}, numbers


def serve(library):
    layer = x = all_rows = None
    answers = sys.stdout
    sys.stdout = sys.stderr  # a library's own words are no answers
    for line in sys.stdin:
        command, *words = line.split()
        try:
            if command == "layer":
                layer = x = None
                weights, numbers = read(words[1])
                all_rows, all_slopes = weights.pop("x"), weights.pop("dy")
                layer = library.layer(words[0], weights, numbers)
                answer = "ok"
            elif command == "rows" and layer is None:
                answer = "none"
            elif command == "rows":
                count = int(words[0])
                x = library.rows(all_rows[:count], all_slopes[:count])
                numpy.ascontiguousarray(library.call(layer, x), dtype=numpy.float32).tofile(words[1])
                answer = "ok"
            else:
                answer = str(seconds_of_call(lambda: library.run(layer, x)))
        except Exception as problem:  # the driver shows it
            answer = f"error: {type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"
        print(answer, file=answers, flush=True)
