#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Doxygen's input filter: it turns a header's plain comments into Doxygen's, so that headers need no syntax of a tool.

A comment right before a declaration documents it, and the declarations that follow without an empty line. A comment after a member
documents the member, and the first comment documents the file. Declarations in the namespace without a comment are hidden, and so
are private and internal ones.
"""
import re
import sys

# Names with a comment that are not for users.
INTERNAL = set("""
all_of arithmetic_t array_view arrays_of active_of capacity_of choice coefficient_labels cost_counter describe describe_activation
describe_mumoe each_released element_of expected_of expert_labels for_levels halves_of has_bias header_of initial_factor initial_weight
is_released_name is_widening joined keeps_zero kind_of layer_arrays layer_from layer_numbers leaf lower magic max_header mixed
monet_bias monet_columns monet_halves monet_rows naive_closed_form pair_mask parameter_reader parameter_writer plan_printer
read_header released released_factors released_kinds released_tensor released_unused released_within ring_labels round_to routed
scalar settings_of shard slice storage transpose with_type
""".split())


def text(comment):
    """Returns plain text for Doxygen: nothing in it is a command or a tag, and `x` is code."""
    escaped = re.sub(r"([\\@#%<>&\"])", r"\\\1", comment)
    return re.sub(r"`([^`]+)`", r"<tt>\1</tt>", escaped)


def documented(lines):
    return ["/// " + text(line.strip()[2:].strip()) for line in lines]


def chunks(lines):
    """Yields the declarations of the namespace, and the lines between them: comments, directives and empty lines."""
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


def name_of(lines):
    """Returns the name that a declaration declares."""
    head = " ".join(line for line in lines[:6] if not re.match(r"\s*(template|requires)\b", line))
    found = re.match(r"\s*(?:struct|class|enum class|concept) (\w+)", head) or re.search(r"(\w+)(?:\(|\s*[={;])", head)
    return found[1] if found else ""


def is_internal(lines):
    """True for internal names, and for functions that take a node of a graph: users have expressions."""
    return name_of(lines) in INTERNAL or any("node_id root" in line for line in lines[:2])


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
        elif re.match(r"  [a-z]", line) and not private and not hidden and is_internal([line]):
            hidden = True
            yield "/// @cond"

        if re.match(r"  // ", line):
            block = at
            while re.match(r"  // ", lines[block]):
                block += 1
            loose = lines[block].strip() in ("", "};") or is_internal([lines[block]])
            yield "" if loose else "  " + documented([line])[0]
        elif trailing := re.match(r"(\s{2,4}\S.*?[;,])\s+// (.*)", line):
            yield f"{trailing[1]}  ///< {text(trailing[2])}"
        else:
            yield line

        if hidden and ends:
            hidden = False
            yield "/// @endcond"


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
            if not comment or is_internal(chunk):
                out += ["/// @cond", *chunk, "/// @endcond"]
            else:
                is_type = any(re.match("struct|class|enum", line) for line in chunk)
                out += [*documented(comment), *(of_members(chunk) if is_type else chunk)]
            comment, last = [], comment
    return "\n".join(out)


print(filtered(open(sys.argv[1], encoding="utf-8").read()))
