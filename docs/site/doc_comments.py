#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Doxygen's input filter: a header's plain comments become Doxygen's, so that headers need no syntax of a tool's.

A comment right before a declaration is its documentation, and that of the declarations that follow without an empty line; one
behind a member is the member's; the first one is the file's. What stands in the namespace without a comment is hidden.
"""
import html
import re
import sys


def text(comment):
    """Plain text as Doxygen takes it: nothing in it is a command or a tag, and `x` is code."""
    escaped = re.sub(r"([\\@#%])", r"\\\1", html.escape(comment, quote=False))
    return re.sub(r"`([^`]+)`", r"<tt>\1</tt>", escaped)


def documented(lines):
    return ["/// " + text(line.strip()[2:].strip()) for line in lines]


def chunks(lines):
    """A declaration of the namespace each, or a line outside any: a comment, a directive, an empty one."""
    at = 0
    while at < len(lines):
        end = at + 1
        if lines[at] and not re.match(r"//|#|namespace|}|\s", lines[at]):
            code = [re.sub(r"\s*//.*", "", line) for line in lines]
            while not re.search(r"[;{}]$", code[end - 1]):
                end += 1
            if code[end - 1].endswith("{"):
                while not lines[end].startswith("}"):
                    end += 1
                end += 1
        yield lines[at:end]
        at = end


def of_members(lines):
    """The members of a class or enumeration, whose comments are indented by two."""
    for at, line in enumerate(lines):
        if re.match(r"  // ", line):
            block = at
            while re.match(r"  // ", lines[block]):
                block += 1
            yield "  " + documented([line])[0] if lines[block].strip() not in ("", "};") else ""
        elif trailing := re.match(r"(\s{2,4}\S.*?[;,])\s+// (.*)", line):
            yield f"{trailing[1]}  ///< {text(trailing[2])}"
        else:
            yield line


def filtered(source):
    out, comment, last = [], [], []
    for chunk in chunks(source.split("\n")):
        line = chunk[0]
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
            is_type = any(re.match("struct|class|enum", c) for c in chunk)
            body = of_members(chunk) if is_type else chunk
            out += [*documented(comment), *body] if comment else ["/// @cond", *body, "/// @endcond"]
            comment, last = [], comment
    return "\n".join(out)


print(filtered(open(sys.argv[1], encoding="utf-8").read()))
