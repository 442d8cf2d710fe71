// SPDX-License-Identifier: MIT
// A target needs a source file; this one's target compiles headers.hpp for others.
