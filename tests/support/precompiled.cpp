// SPDX-License-Identifier: MIT
// A target needs a source file; this one's target compiles precompiled.hpp for others.
