#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Doxygen's input filter: it turns a header's plain comments into Doxygen's, so that headers need no syntax of a tool.

A comment right before a declaration documents it, and the declarations that follow without an empty line. A comment after a member
documents the member, and the first comment documents the file. Declarations in a namespace without a comment are hidden, and so
are namespaces that are not for users, private members, and members that only the library calls.
"""
import re
import sys

# The namespaces that users name.
FOR_USERS = ("fmoe", "fmoe::io", "fmoe::io::npy", "io")

# Members that only the library calls, and names of fmoe::io that are not for users.
INTERNAL = set("""
describe lower released released_kinds released_unused scalar
all_of arrays_for element_of fill has_tensor header_of kind_of layer_arrays layer_from layer_numbers magic max_header outlines
read_header shard transpose with_new with_new_layer
""".split())


def text(comment):
    """Returns plain text for Doxygen: nothing in it is a command or a tag, and `x` is code."""
    escaped = re.sub(r"([\\@#%<>&\"])", r"\\\1", comment)
    return re.sub(r"`([^`]+)`", r"<tt>\1</tt>", escaped)


def code_in(line):
    """Returns the code of a line of a comment, which stands three columns further right than its text, or None."""
    found = re.match(r"\s*//   ( *\S.*)", line)
    return found[1] if found else None


def documented(lines):
    result, inside = [], False
    for line in lines:
        code = code_in(line)
        if (code is not None) != inside:
            inside = not inside
            result.append("/// @code{.cpp}" if inside else "/// @endcode")
        result.append("/// " + (code if inside else text(line.strip()[2:].strip())))
    return result + ["/// @endcode"] * inside


def examples(source):
    """Yields the blocks of code in the comments of a header."""
    block = []
    for line in source.split("\n") + [""]:
        code = code_in(line)
        if code is not None:
            block.append(code)
        elif block:
            yield "\n".join(block)
            block = []


def is_whole(code):
    """True if lines of code, without comments, are a whole declaration, and not only its template and constraints."""
    text = re.sub(r"""\"(?:\\.|[^"\\])*\"|'(?:\\.|[^'\\])*'""", "", "\n".join(code))
    balanced = all(text.count(a) == text.count(b) for a, b in ("()", "{}"))
    return balanced and re.search(r"[;}]$", text.strip()) is not None and head_of(code) != ""


def head_of(code):
    """Returns the line at column 0 that says what is declared."""
    return next((line for line in code if re.match(r"(?!template\b|requires\b)[A-Za-z\[]", line)), "")


def chunks(lines):
    """Yields the declarations of the namespace, and the lines between them: comments, directives and empty lines."""
    at = 0
    while at < len(lines):
        end = at + 1
        if lines[at] and not re.match(r"//|#|namespace|}|\s", lines[at]):
            code = [re.sub(r"\s*//.*", "", line) for line in lines]
            while end < len(lines) and not is_whole(code[at:end]):
                end += 1
        yield lines[at:end]
        at = end


def name_of(lines):
    """Returns the name that a declaration declares."""
    code = [re.sub(r"\s*//.*", "", line) for line in lines]
    start = head_of(code)
    head = " ".join(code[code.index(start):]) if start else ""
    if found := re.match(r"(?:struct|class|enum class|enum|concept) (\w+)", head):
        return found[1]
    if found := re.match(r"using (?:\w+::)*(\w+)", head):
        return found[1]
    if found := re.search(r"\boperator\s*([^\s\w(]+)", head.split("{")[0]):
        return f"operator{found[1]}"
    without_arguments = head
    while re.search(r"<[^<>]*>", without_arguments):
        without_arguments = re.sub(r"<[^<>]*>", "", without_arguments)
    found = re.search(r"([\w:]+)\s*[({=;]", without_arguments)
    return found[1] if found and "::" not in found[1] else ""  # a member that is defined outside its class is no new name


def declarations(source):
    """Yields (namespace, name, whether a comment documents it, line) for each declaration of a header."""
    namespaces, comment, last, number = [], False, False, 1
    for chunk in chunks(source.split("\n")):
        line = chunk[0]
        if opened := re.match(r"namespace ([\w:]+) {", line):
            namespaces.append(opened[1])
        elif line.startswith("}"):
            namespaces = namespaces[:-1]
        if line.startswith("//"):
            comment = True
        elif not line or re.match(r"#|namespace|}|\s", line):
            comment, last = False, False
        else:
            comment = comment or last
            yield "::".join(namespaces), name_of(chunk), comment, number
            comment, last = False, comment
        number += len(chunk)


def is_internal(lines):
    return name_of(lines) in INTERNAL


def of_members(lines):
    """Returns the members of a class or enumeration, whose comments are indented by two."""
    hidden = private = False
    for at, line in enumerate(lines):
        ends = re.search(r"^  \S.*;$|^  }|^  \S.*}$", line)
        if line == " private:":
            private = True
            yield "/// @cond"
        elif line.startswith("}") and private:
            yield "/// @endcond"
        elif re.match(r"  [a-z]", line) and not private and not hidden and name_of([line.strip()]) in INTERNAL:
            hidden = True
            yield "/// @cond"

        if re.match(r"  // ", line):
            block = at
            while re.match(r"  // ", lines[block]):
                block += 1
            loose = lines[block].strip() in ("", "};") or name_of([lines[block].strip()]) in INTERNAL
            yield "" if loose else "  " + documented([line])[0]
        elif trailing := re.match(r"(\s{2,4}\S.*?[;,])\s+// (.*)", line):
            yield f"{trailing[1]}  ///< {text(trailing[2])}"
        else:
            yield line

        if hidden and ends:
            hidden = False
            yield "/// @endcond"


def filtered(source):
    out, comment, last, namespaces = [], [], [], []
    for chunk in chunks(source.split("\n")):
        line = chunk[0]
        if opened := re.match(r"namespace ([\w:]+) {", line):
            namespaces.append(opened[1])
        if line.startswith("//"):
            comment.append(line)
        elif line == "#pragma once":
            out += ["/// @file", *documented(comment[1:]), line]  # without the licence
            comment = []
        elif not line or re.match(r"#|namespace|}|\s", line):
            out.append(line)
            comment, last = [], []
        else:
            comment = comment or last
            if not comment or is_internal(chunk) or namespaces[-1] not in FOR_USERS:
                out += ["/// @cond", *chunk, "/// @endcond"]
            else:
                is_type = any(re.match("struct|class|enum", line) for line in chunk)
                out += [*documented(comment), *(of_members(chunk) if is_type else chunk)]
            comment, last = [], comment
        if line.startswith("}"):
            namespaces = namespaces[:-1]
    return "\n".join(out)


if __name__ == "__main__":
    print(filtered(open(sys.argv[1], encoding="utf-8").read()))
