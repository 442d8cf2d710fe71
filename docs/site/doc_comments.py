#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Doxygen's input filter: it turns a header's plain comments into Doxygen's, so that headers need no syntax of a tool.

A comment right before a declaration documents it, and the declarations that follow without an empty line. A comment after a member
documents the member, and the first comment documents the file. Declarations in a namespace without a comment are hidden, and so
are namespaces that are not for users, private members, members that only the library calls, and overloads that only say what is
wrong with a call. The signatures of the others lose what is not for users.
"""
import re
import sys

# The namespaces that users name.
FOR_USERS = ("fmoe", "fmoe::cuda", "fmoe::dynamic", "fmoe::io", "fmoe::io::npy", "io")

# Members that only the library calls, and names of fmoe::io that are not for users.
INTERNAL = set("""
derived describe labels lower released released_kinds released_unused scalar space
all_of arrays_for arrays_in arrays_of element_of elements_as fill has_tensor header_of kind_of layer_arrays layer_from
layer_numbers magic max_header metadata_of outlines read_header transpose with_new with_new_layer
""".split())

# Functions and members that say nothing to users: overloads that refuse a call with a sentence, what the compiler writes itself, what
# takes a graph, and types that a class names for the library.
NOT_FOR_USERS = re.compile(r"""
    \{\s*(static_assert\(\s*((detail::)?never<|OtherRank\s)|return\s+detail::(not_|both_operands)\w*\()
    | \bdetail::(refused|no_layer)\s+\w | \(const\s+(ir::graph|any_tensor)& | <with_new_layer> | ^using\s+T\s
    | =\s*(default|delete);$ | ^(virtual\s+)?~
    | ^(?P<own>\w+)\((const\s+)?(?P=own)&&?(\s\w+)?\) | ^\w+&\s+operator=\(""", re.X | re.S | re.M)

# What signatures show of names that are not for users.
SHOWN = [(r"detail::(?:own_operand|mappable)\b", "operand"), (r"detail::plain_number\b", "double"),
         (r"\bclass (?:Level|Arch) = cpu::native, ", ""), (r"(?m)^ *template <class Level = cpu::native>\n", ""),
         (r"\bdetail::(subscripts|array_operand|arithmetic_t)\b", r"\1"),
         (r"(?m)^(inline |constexpr )*detail::\w+(?:<[^()]*>)? (?=\w+\()", "auto "), (r"\s-> detail::[^{;]*(?=[{;])", " ")]


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
            result.append("/// @code{.unparsed}" if inside else "/// @endcode")
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
    return next((line for line in code if re.match(r"(?!template\b|requires\b)[A-Za-z\[~]", line)), "")


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
    """Yields (namespace, name, whether the reference shows it, line) for each declaration of a header."""
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
            yield "::".join(namespaces), name_of(chunk), comment and not is_internal(chunk), number
            comment, last = False, comment
        number += len(chunk)


def without_comments(lines):
    return [re.sub(r"\s*//.*", "", line) for line in lines]


def is_type(lines):
    return re.match(r"(struct|class|enum) ", head_of(lines)) is not None


def is_internal(lines):
    """True if a declaration is not for users: by its name, as a specialisation, or by what it does."""
    if is_type(lines):
        return re.match(r"(struct|class) \w+<", head_of(lines)) is not None
    return name_of(lines) in INTERNAL or NOT_FOR_USERS.search("\n".join(without_comments(lines))) is not None


def for_users(lines):
    """Returns the lines of a declaration as users see it."""
    text = "\n".join(lines)
    for pattern, shown in SHOWN:
        text = re.sub(pattern, shown, text)
    return text.split("\n")


def members(lines):
    """Yields the comments, declarations and other lines of a class or enumeration, whose members are indented by two."""
    code = without_comments(lines)
    head = head_of(code)
    at = code.index(head) + 1
    yield lines[:at]
    code = [line.removeprefix("  ") for line in code]
    while at < len(lines):
        end = at + 1
        if lines[at].startswith("  // "):
            while lines[end].startswith("  //"):
                end += 1
        elif re.match(r"  [^\s}]", lines[at]) and not head.startswith("enum"):
            while end < len(lines) - 1 and not is_whole(code[at:end]):
                end += 1
        yield lines[at:end]
        at = end


def of_members(lines):
    """Yields the lines of a class or enumeration for Doxygen, without members that are not for users."""
    private, comment = head_of(lines).startswith("class"), []
    for block in members(lines):
        line = block[0]
        if line in (" private:", " public:"):
            private = line == " private:"
        if line.startswith("  // "):
            comment = documented(block)
        elif not re.match(r"  [^\s}]", line):
            comment = []
            yield from block
        elif not private and not is_internal([line.removeprefix("  ") for line in block]):
            trailing = re.match(r"(\s{2,4}\S.*?[;,])\s+// (.*)", line)
            yield from comment
            yield from [f"{trailing[1]}  ///< {text(trailing[2])}", *block[1:]] if trailing else for_users(block)
            if not re.search(r"\w\(", "".join(block)):  # a function's comment holds for those that follow, too
                comment = []


def filtered(source):
    out, comment, last, namespaces = [], [], [], []
    for chunk in chunks(source.split("\n")):
        line = chunk[0]
        if opened := re.match(r"namespace ([\w:]+) {", line):
            namespaces.append(opened[1])
        if namespaces and namespaces[-1] not in FOR_USERS:
            comment = []
        elif line.startswith("//"):
            comment.append(line)
        elif line == "#pragma once":
            out += ["/// @file", *documented(comment[1:]), line]  # without the licence
            comment = []
        elif not line or re.match(r"#|namespace|}|\s", line):
            out.append(line)
            comment, last = [], []
        else:
            comment = comment or last
            if comment and not is_internal(chunk):
                out += [*documented(comment), *(of_members(chunk) if is_type(chunk) else for_users(chunk))]
            comment, last = [], comment
        if line.startswith("}"):
            namespaces = namespaces[:-1]
    return "\n".join(out)


if __name__ == "__main__":
    print(filtered(open(sys.argv[1], encoding="utf-8").read()))
