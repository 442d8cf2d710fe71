// SPDX-License-Identifier: MIT
// Files and folders that the user may not read are errors of the system, as every other one is.
#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/safetensors.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/skip.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

#if defined(_WIN32)

TEST_CASE("what the user may not read is an io::error", "[io]") {
  skip_case("Windows has no permissions of this kind");
}

#else

constexpr int is_true = 0, is_false = 1, stays_root = 2;

// Root may read everything. So this asks f() in a process of another user, if root runs the test.
template <class F>
int as_a_user(const F& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(stays_root);
    bool answer = false;
    try {
      answer = f();
    } catch (...) {  // it is false
    }
    ::_exit(answer ? is_true : is_false);
  }
  int status = -1;
  REQUIRE(child > 0);
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("what the user may not read is an io::error", "[io]") {
  using std::filesystem::permissions, std::filesystem::perms;
  const temporary_folder folder;
  permissions(folder.path(), perms::all);
  for (const char* name : {"open", "closed"}) {
    std::filesystem::create_directory(folder / name);
    io::safetensors::write(folder / name / "model.safetensors", {});
    permissions(folder / name / "model.safetensors", perms::all);
    permissions(folder / name, perms::all);
  }
  io::safetensors::write(folder / "secret", {});
  permissions(folder / "secret", perms::none);
  permissions(folder / "closed", perms::none);
  const auto is_refused = [](const auto& read) { return caught(read).code == io::errc::io; };
  const auto opens = [&](const std::filesystem::path& path) {
    return [path] { io::checkpoint::open(path); };
  };
  const int reads = as_a_user([&] {
    opens(folder / "open")();
    opens(folder / "open/model.safetensors")();
    return true;
  });
  const int refused = as_a_user([&] {
    return is_refused(opens(folder / "closed")) &&
           is_refused(opens(folder / "closed/model.safetensors")) &&
           is_refused([&] { io::safetensors::read(folder / "secret"); });
  });
  permissions(folder / "closed", perms::all);
  if (reads == stays_root) return skip_case("root cannot become another user");
  CHECK(reads == is_true);
  CHECK(refused == is_true);
}

#endif

}  // namespace
