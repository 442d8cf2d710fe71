// SPDX-License-Identifier: MIT
// The states of storage: which sequences of operations are allowed, and what holds after each.
#include <fmoe/arrays/storage.hpp>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/evaluate.hpp>
#include <fmoe/gradients.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

int& number_in(void* elements) { return *static_cast<int*>(elements); }
int number_of(const storage& s) { return number_in(s.data()); }
void set_number(storage& s, int number) { number_in(s.written()) = number; }

// How a storage came to its elements.
enum class made {
  owned,     // storage(bytes): memory of its own
  watched,   // storage(pointer, bytes, owner): it writes the memory of others in place
  borrowed,  // storage(pointer, bytes): the same, and others may write at any time
  read_only  // storage(pointer to const, bytes): it never writes the memory of others
};

// Two storages of one number each. `a` starts with 1, which lies in `memory` if it is borrowed, and
// b with 5 of its own. Something was derived from the elements of both: packed panels, say.
class two_storages {
 public:
  explicit two_storages(made how) {
    const void* const fixed = &memory;
    if (how == made::owned) a.emplace(sizeof(int));
    if (how == made::watched) a.emplace(&memory, sizeof(int), nullptr);
    if (how == made::borrowed) a.emplace(&memory, sizeof(int));
    if (how == made::read_only) a.emplace(fixed, sizeof(int));
    b.emplace(sizeof(int));
    number_in(a->data()) = 1;
    number_in(b->data()) = 5;
    of_a = derived(*a);
    of_b = derived(*b);
  }

  // Runs one operation of a sequence.
  void run(const std::string& step) {
    if (step == "copy") b.emplace(*a);  // b is a copy of a from now on
    else if (step == "write a") set_number(*a, 2);
    else if (step == "write b") set_number(*b, 3);
    else if (step == "lend a") number_in(held = a->lent()) = 2;
    else if (step == "held") number_in(held) = 6;  // by the pointer that was lent
    else if (step == "a = a") *a = std::as_const(*a);
    else if (step == "a = b") *a = std::as_const(*b);
    else if (step == "b = a") *b = std::as_const(*a);
    else if (step == "b = move(a)") {
      *b = std::move(*a);
      a.reset();                                // what was moved from is not used again
    } else if (step == "memory") memory = 4;    // others write the memory
    else if (step == "told") a->was_written();  // and say so
    else if (step == "unwatched") a->set_unwatched();
    else FAIL("no operation is called " << step);
  }

  // What was derived from the elements, or is made of them now.
  static std::shared_ptr<const void> derived(storage& s) {
    return s.derived("panels", [&] { return std::make_shared<const int>(number_of(s)); });
  }

  // "a" or "b" if s still has what was derived from their elements at first, or "new" if that is
  // made of the elements as they are now.
  std::string origin(storage& s) const {
    const auto found = derived(s);
    if (found == of_a) return "a";
    if (found == of_b) return "b";
    return *static_cast<const int*>(found.get()) == number_of(s) ? "new" : "wrong";
  }

  int memory = 1;
  void* held = nullptr;
  std::optional<storage> a, b;
  std::shared_ptr<const void> of_a, of_b;
};

constexpr int gone = -1;

// A sequence, and what holds behind it: the numbers that a, b and the memory hold, how often a and
// b count a write, whether both have the same elements, and what is derived from them.
struct sequence {
  made how;
  std::vector<std::string> steps;
  int a, b, memory;
  int version_a, version_b;
  bool same;
  std::string derived_a, derived_b;
};

using enum made;

const std::vector<sequence> sequences = {
    // Elements of its own: copies share them until one of the two is written. The one that is
    // written has elements of its own from then on, and the other one keeps what was derived.
    {owned, {}, 1, 5, 1, 0, 0, false, "a", "b"},
    {owned, {"write a"}, 2, 5, 1, 1, 0, false, "new", "b"},
    {owned, {"copy"}, 1, 1, 1, 0, 0, true, "a", "a"},
    {owned, {"copy", "write a"}, 2, 1, 1, 1, 0, false, "new", "a"},
    {owned, {"copy", "write b"}, 1, 3, 1, 0, 1, false, "a", "new"},
    {owned, {"copy", "write b", "write a"}, 2, 3, 1, 1, 1, false, "new", "new"},
    {owned, {"copy", "write a", "write a"}, 2, 1, 1, 2, 0, false, "new", "a"},
    {owned, {"copy", "write a", "copy"}, 2, 2, 1, 1, 0, true, "new", "new"},
    // An assignment takes the elements of the other one, with what was derived from them, and
    // counts as a write of the one that is assigned.
    {owned, {"b = a"}, 1, 1, 1, 0, 1, true, "a", "a"},
    {owned, {"b = a", "write a"}, 2, 1, 1, 1, 1, false, "new", "a"},
    {owned, {"b = a", "write b"}, 1, 3, 1, 0, 2, false, "a", "new"},
    {owned, {"a = b"}, 5, 5, 1, 1, 0, true, "b", "b"},
    {owned, {"a = b", "write a"}, 2, 5, 1, 2, 0, false, "new", "b"},
    {owned, {"a = b", "b = a"}, 5, 5, 1, 1, 1, true, "b", "b"},
    {owned, {"b = move(a)"}, gone, 1, 1, 0, 1, false, "", "a"},
    {owned, {"b = move(a)", "write b"}, gone, 3, 1, 0, 2, false, "", "new"},
    {owned, {"copy", "b = move(a)"}, gone, 1, 1, 0, 1, false, "", "a"},

    // Elements that were lent may be written by whoever has the pointer: they are read anew, and a
    // copy has elements of its own at once. An assigned number stands where the pointer points.
    {owned, {"lend a"}, 2, 5, 1, 1, 0, false, "new", "b"},
    {owned, {"lend a", "held"}, 6, 5, 1, 1, 0, false, "new", "b"},
    {owned, {"copy", "lend a", "held"}, 6, 1, 1, 1, 0, false, "new", "a"},
    {owned, {"lend a", "copy", "held"}, 6, 2, 1, 1, 0, false, "new", "new"},
    {owned, {"lend a", "copy", "write b", "held"}, 6, 3, 1, 1, 1, false, "new", "new"},
    {owned, {"lend a", "b = a", "held"}, 6, 2, 1, 1, 1, false, "new", "new"},
    {owned, {"lend a", "a = b"}, 5, 5, 1, 2, 0, false, "new", "b"},
    {owned, {"lend a", "a = b", "held"}, 6, 5, 1, 2, 0, false, "new", "b"},
    {owned, {"lend a", "a = a", "held"}, 6, 5, 1, 2, 0, false, "new", "b"},
    {owned, {"lend a", "write a", "held"}, 6, 5, 1, 2, 0, false, "new", "b"},
    {owned, {"lend a", "held", "b = move(a)"}, gone, 6, 1, 0, 1, false, "", "new"},
    {owned, {"lend a", "b = move(a)", "held"}, gone, 6, 1, 0, 1, false, "", "new"},

    // Borrowed elements are written in place, whoever else has them. A copy sees that until it is
    // written, which gives it elements of its own: a copy never writes the memory of others.
    {watched, {}, 1, 5, 1, 0, 0, false, "a", "b"},
    {watched, {"write a"}, 2, 5, 2, 1, 0, false, "new", "b"},
    {watched, {"copy"}, 1, 1, 1, 0, 0, true, "a", "a"},
    {watched, {"write a", "copy"}, 2, 2, 2, 1, 0, true, "new", "new"},
    {watched, {"copy", "write b"}, 1, 3, 1, 0, 1, false, "a", "new"},
    {watched, {"copy", "write b", "write a"}, 2, 3, 2, 1, 1, false, "new", "new"},
    {watched, {"lend a"}, 2, 5, 2, 1, 0, false, "new", "b"},
    // An assigned copy is like any copy. A storage that is assigned borrows no longer, unless it is
    // assigned to itself.
    {watched, {"b = a"}, 1, 1, 1, 0, 1, true, "a", "a"},
    {watched, {"b = a", "write b"}, 1, 3, 1, 0, 2, false, "a", "new"},
    {watched, {"b = a", "write b", "write a"}, 2, 3, 2, 1, 2, false, "new", "new"},
    {watched, {"a = b"}, 5, 5, 1, 1, 0, true, "b", "b"},
    {watched, {"a = b", "write a"}, 2, 5, 1, 2, 0, false, "new", "b"},
    {watched, {"a = b", "memory"}, 5, 5, 4, 1, 0, true, "b", "b"},
    {watched, {"a = a", "write a"}, 2, 5, 2, 2, 0, false, "new", "b"},
    // A move takes the right to write in place with the elements.
    {watched, {"b = move(a)"}, gone, 1, 1, 0, 1, false, "", "a"},
    {watched, {"b = move(a)", "write b"}, gone, 3, 3, 0, 2, false, "", "new"},
    {watched, {"copy", "b = move(a)", "write b"}, gone, 3, 3, 0, 2, false, "", "new"},
    // Others say that they have written, or are said to write at any time, which reaches all that
    // share the elements.
    {watched, {"memory", "told"}, 4, 5, 4, 1, 0, false, "new", "b"},
    {watched, {"memory", "told", "memory", "told"}, 4, 5, 4, 2, 0, false, "new", "b"},
    {watched, {"copy", "write b", "memory", "told"}, 4, 3, 4, 1, 1, false, "new", "new"},
    {watched, {"unwatched", "memory"}, 4, 5, 4, 0, 0, false, "new", "b"},
    {watched, {"unwatched", "copy", "memory"}, 4, 4, 4, 0, 0, true, "new", "new"},
    {watched, {"copy", "unwatched", "memory"}, 4, 4, 4, 0, 0, true, "new", "new"},

    // Without an owner to tell, others may write at any time.
    {borrowed, {}, 1, 5, 1, 0, 0, false, "new", "b"},
    {borrowed, {"memory"}, 4, 5, 4, 0, 0, false, "new", "b"},
    {borrowed, {"write a"}, 2, 5, 2, 1, 0, false, "new", "b"},
    {borrowed, {"copy", "memory"}, 4, 4, 4, 0, 0, true, "new", "new"},
    {borrowed, {"copy", "write b", "memory"}, 4, 3, 4, 0, 1, false, "new", "new"},
    {borrowed, {"b = a", "memory"}, 4, 4, 4, 0, 1, true, "new", "new"},
    {borrowed, {"a = b", "memory"}, 5, 5, 4, 1, 0, true, "b", "b"},
    {borrowed, {"a = a", "memory"}, 4, 5, 4, 1, 0, false, "new", "b"},
    {borrowed, {"b = move(a)", "memory"}, gone, 4, 4, 0, 1, false, "", "new"},
    {borrowed, {"lend a", "held"}, 6, 5, 6, 1, 0, false, "new", "b"},

    // Elements that are const are never written in place: the first write copies them.
    {read_only, {}, 1, 5, 1, 0, 0, false, "new", "b"},
    {read_only, {"memory"}, 4, 5, 4, 0, 0, false, "new", "b"},
    {read_only, {"memory", "told", "memory", "told"}, 4, 5, 4, 2, 0, false, "new", "b"},
    {read_only, {"copy", "memory"}, 4, 4, 4, 0, 0, true, "new", "new"},
    {read_only, {"write a"}, 2, 5, 1, 1, 0, false, "new", "b"},
    {read_only, {"copy", "write a"}, 2, 1, 1, 1, 0, false, "new", "new"},
    {read_only, {"copy", "write b"}, 1, 3, 1, 0, 1, false, "new", "new"},
    {read_only, {"b = a", "write b"}, 1, 3, 1, 0, 2, false, "new", "new"},
    {read_only, {"b = move(a)", "write b"}, gone, 3, 1, 0, 2, false, "", "new"},
    {read_only, {"write a", "memory"}, 2, 5, 4, 1, 0, false, "new", "b"},
};

TEST_CASE("what holds after each sequence of operations on a storage", "[storage]") {
  for (const sequence& expected : sequences) {
    std::ostringstream text;
    const char* const names[] = {"owned", "watched", "borrowed", "read-only"};
    text << names[static_cast<int>(expected.how)];
    two_storages made(expected.how);
    for (const std::string& step : expected.steps) {
      text << ", " << step;
      made.run(step);
    }
    INFO(text.str());
    CHECK(made.memory == expected.memory);
    CHECK((made.a ? number_of(*made.a) : gone) == expected.a);
    if (made.a) {
      CHECK(made.a->version() == static_cast<std::uint64_t>(expected.version_a));
      CHECK(made.a->same_elements(*made.b) == expected.same);
      CHECK((made.a->data() == made.b->data()) == expected.same);
      CHECK(made.origin(*made.a) == expected.derived_a);
    }
    CHECK(number_of(*made.b) == expected.b);
    CHECK(made.b->version() == static_cast<std::uint64_t>(expected.version_b));
    CHECK(made.origin(*made.b) == expected.derived_b);
  }
}

TEST_CASE("a copy sees what is written to borrowed elements, until it is written", "[storage]") {
  two_storages both(watched);
  both.run("copy");
  both.run("write a");
  CHECK(number_of(*both.b) == 2);
  CHECK(both.b->same_elements(*both.a));
  CHECK(both.origin(*both.b) == "new");  // nobody reads what was derived from the old number
  both.run("write b");
  CHECK(number_of(*both.a) == 2);
  CHECK(both.memory == 2);
  both.memory = 6;
  CHECK(number_of(*both.a) == 6);
  CHECK(number_of(*both.b) == 3);
}

TEST_CASE("elements are copied by the first write, and only if they are shared", "[storage]") {
  storage a(sizeof(int));
  const void* const first = a.data();
  set_number(a, 1);
  CHECK(a.data() == first);
  auto b = std::make_optional<storage>(a);
  CHECK(b->data() == first);
  set_number(a, 2);
  CHECK(a.data() != first);
  CHECK(b->data() == first);
  const void* const second = a.data();
  set_number(a, 3);
  set_number(*b, 4);
  CHECK(a.data() == second);
  CHECK(b->data() == first);

  b.emplace(a);
  b.reset();  // a copy that has gone shares nothing
  set_number(a, 5);
  CHECK(a.data() == second);
}

TEST_CASE("written() counts, whether something is written or not, and nothing else does",
          "[storage]") {
  storage a(sizeof(int));
  CHECK(a.version() == 0);
  static_cast<void>(a.data());
  static_cast<void>(two_storages::derived(a));
  std::shared_ptr<const void> held;
  a.renew("panels", held, [] { return nullptr; }, [](void*) {});
  a.set_unwatched();
  const storage copy = a;
  CHECK(a.version() == 0);
  CHECK(copy.version() == 0);
  a.written();
  CHECK(a.version() == 1);
  CHECK(copy.version() == 0);
  CHECK(storage(a).version() == 0);  // each storage counts for itself
}

TEST_CASE("what was derived is made once for a key, and freed when others are asked for",
          "[storage]") {
  storage a(sizeof(int));
  int calls = 0;
  const auto derived = [&](storage& s, const char* key) {
    return s.derived(key, [&] { return std::make_shared<const int>(++calls); });
  };
  const std::weak_ptr<const void> panels = derived(a, "panels"), table = derived(a, "table");
  CHECK(calls == 2);
  storage b = a;
  CHECK(derived(b, "panels") == panels.lock());
  CHECK(calls == 2);
  b = storage(sizeof(int));  // the elements have a user less, and keep what was derived from them
  CHECK(derived(a, "panels") == panels.lock());

  a.written();
  CHECK_FALSE(panels.expired());  // it may be written again before anyone asks
  derived(a, "panels");
  CHECK(calls == 3);
  CHECK(panels.expired());
  CHECK(table.expired());

  const std::weak_ptr<const void> last = derived(a, "panels");
  a = b;
  CHECK(last.expired());  // with the elements
}

// A plan that holds what it reads, and has it renewed when the elements may have been written.
struct holder {
  std::shared_ptr<const void> held = nullptr;
  int made = 0, renewed = 0;

  int read(storage& s) {
    s.renew(
        "panels", held,
        [&] {
          ++made;
          return std::make_shared<int>(number_of(s));
        },
        [&](void* old) {
          ++renewed;
          number_in(old) = number_of(s);
        });
    return *static_cast<const int*>(held.get());
  }
};

TEST_CASE("what a plan holds is renewed in place if nobody else has it", "[storage]") {
  storage a(sizeof(int));
  holder first, second;
  set_number(a, 1);
  SECTION("alone") {
    CHECK(first.read(a) == 1);  // made
    const void* const place = first.held.get();
    CHECK(first.read(a) == 1);  // known
    for (const int number : {2, 3}) {
      set_number(a, number);
      CHECK(first.read(a) == number);
      CHECK(first.held.get() == place);
    }
    CHECK(first.made == 1);
    CHECK(first.renewed == 2);
  }
  SECTION("two plans share what one of them made, before a write and after it") {
    CHECK(first.read(a) == 1);
    CHECK(second.read(a) == 1);
    CHECK(first.held == second.held);
    const auto old = first.held;
    set_number(a, 2);
    CHECK(first.read(a) == 2);
    CHECK(first.held != old);
    CHECK(*static_cast<const int*>(second.held.get()) == 1);  // a call that runs reads on
    CHECK(second.read(a) == 2);
    CHECK(first.held == second.held);
    CHECK(first.made + second.made == 2);
    CHECK(first.renewed + second.renewed == 0);
  }
  SECTION("a call that runs keeps what it reads") {
    CHECK(first.read(a) == 1);
    const auto running = first.held;
    set_number(a, 2);
    CHECK(first.read(a) == 2);
    CHECK(*static_cast<const int*>(running.get()) == 1);
    CHECK(first.renewed == 0);
  }
  SECTION("a copy that is written is renewed elsewhere") {
    CHECK(first.read(a) == 1);
    storage b = a;
    CHECK(second.read(b) == 1);
    CHECK(first.held == second.held);
    set_number(b, 2);
    CHECK(second.read(b) == 2);
    CHECK(first.read(a) == 1);
    CHECK(first.made + second.made == 2);
  }
  SECTION("the elements that it was made of have gone") {
    CHECK(first.read(a) == 1);
    const void* const place = first.held.get();
    storage b(sizeof(int));
    set_number(b, 7);
    a = b;
    CHECK(first.read(a) == 7);
    CHECK(first.held.get() == place);
    CHECK(first.renewed == 1);
  }
  SECTION("the elements that it was made of have another user") {
    CHECK(first.read(a) == 1);
    storage copy = a, b(sizeof(int));
    set_number(b, 7);
    a = b;
    CHECK(first.read(a) == 7);
    CHECK(first.renewed == 0);
    CHECK(second.read(copy) == 1);
    CHECK(second.made == 0);
  }
  SECTION("elements that nobody watches, each time, for each plan") {
    int memory = 1;
    storage unwatched(&memory, sizeof memory);
    CHECK(first.read(unwatched) == 1);
    CHECK(second.read(unwatched) == 1);
    CHECK(first.held != second.held);
    memory = 2;
    CHECK(first.read(unwatched) == 2);
    CHECK(*static_cast<const int*>(second.held.get()) == 1);
    CHECK(first.renewed == 1);
  }
  SECTION("what was known before they were lent is given up") {
    CHECK(first.read(a) == 1);
    CHECK(second.read(a) == 1);
    const auto old = first.held;
    number_in(a.lent()) = 2;
    CHECK(old.use_count() == 3);  // of the plans, and this one
    CHECK(first.read(a) == 2);
    CHECK(*static_cast<const int*>(second.held.get()) == 1);
    CHECK(second.read(a) == 2);
  }
}

TEST_CASE("an owner lives until the last user of its elements has gone", "[storage]") {
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = owner;
  auto a = std::make_optional<storage>(owner.get(), sizeof(int), owner);
  owner.reset();
  auto b = std::make_optional<storage>(*a);
  a.reset();
  CHECK(number_of(*b) == 1);
  CHECK_FALSE(alive.expired());
  SECTION("by its end") { b.reset(); }
  SECTION("by a write, which makes elements of its own") {
    set_number(*b, 2);
    CHECK(number_of(*b) == 2);
  }
  SECTION("by an assignment") { *b = storage(sizeof(int)); }
  SECTION("by a move, which passes it on") {
    storage c(sizeof(int));
    c = std::move(*b);
    b.reset();
    CHECK_FALSE(alive.expired());
    CHECK(number_of(c) == 1);
  }
  CHECK(alive.expired());
}

TEST_CASE("without an owner, nothing of the memory is freed", "[storage]") {
  int memory = 1;
  {
    storage a(&memory, sizeof memory);
    const storage copy = a;
    set_number(a, 2);
  }
  CHECK(memory == 2);
}

struct two_weights {
  parameter<float, 2> w;
  parameter<float, 1> b;
  auto operator()(const operand_of<2> auto& x) const { return einsum<"ti,io->to">(x, w) + b; }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"w", presence::required, "io"}, layer.w);
    visit(released_name{"b", presence::required, "o"}, layer.b);
  }
};

// A tensor is a handle: its copies have storages of their own, its views and the expressions that
// read it have its own one.
TEST_CASE("an expression reads what is written to its tensor, and assigned to it", "[storage]") {
  tensor<float, 1> t({1}, {1});
  const tensor<float, 1> copy = t;
  CHECK(copy.shared_storage() != t.shared_storage());
  CHECK(copy.shared_storage()->same_elements(*t.shared_storage()));
  const auto twice = 2 * t;
  const auto value = [&] { return evaluate(twice)(0); };
  CHECK(value() == 2);
  t(0) = 3;
  CHECK(value() == 6);
  CHECK(copy(0) == 1);
  t = copy;  // of the same shape: a write to the storage that the expression reads
  CHECK(value() == 2);
  t = tensor<float, 1>({1}, {5});
  CHECK(value() == 10);
  const tensor<float, 1> moved = std::move(t);  // with the storage that the expression reads
  t = tensor<float, 1>({2}, {7, 8});
  CHECK(value() == 10);
}

TEST_CASE("no result mixes the members of two layers", "[storage]") {
  const tensor<float, 2> x({1, 1}, {10});
  two_weights layer{tensor<float, 2>({1, 1}, {2}), tensor<float, 1>({1}, {1})};
  const auto e = layer(x);
  auto forward = compile(layer, 1);
  auto step = compile_gradients(layer, 1);
  CHECK(evaluate(e)(0, 0) == 21);
  const two_weights wide{tensor<float, 2>({1, 2}, {3, 4}), tensor<float, 1>({2}, {5, 6})};
  const two_weights same_bias{tensor<float, 2>({1, 2}, {3, 4}), tensor<float, 1>({1}, {7})};
  const std::string again =
      "[refresh] a weight was assigned a tensor of another shape, or none: compile the layer again";

  SECTION("all members are of other shapes, so the old ones go on") {
    SECTION("a copy") { layer = wide; }
    SECTION("a move") { layer = two_weights(wide); }
    SECTION("none") { layer = {}; }
    SECTION("one member") { layer.w = wide.w; }
    CHECK(evaluate(e)(0, 0) == 21);
    CHECK(forward(x)(0, 0) == 21);
  }
  SECTION("one member is of another shape, and another one is written") {
    SECTION("by the same assignment") { layer = same_bias; }
    SECTION("before it") {
      layer.b(0) = 7;
      layer.w = wide.w;
    }
    SECTION("after it") {
      layer.w = {};
      layer.b(0) = 7;
    }
    CHECK_THROWS_WITH(evaluate(e),
                      "[evaluate] a weight of the expression was assigned a tensor of another "
                      "shape, or none, and another weight was written: make the expression again");
    CHECK_THROWS_AS(forward(x), value_error);
  }
  CHECK_THROWS_WITH(forward.refresh(), again);
  CHECK_THROWS_WITH(step.refresh(), again);
}

constexpr auto product = [](const auto& x, const auto& w) { return einsum<"ti,io->to">(x, w); };

TEST_CASE("a compiled layer refuses to run after a write that was counted", "[storage]") {
  float memory = 1;
  const tensor<float, 2> x({1, 1}, {10});
  const parameter<float, 2> weight = borrow(std::span(&memory, 1), {1, 1});
  auto forward = compile([&](const auto& in) { return product(in, weight); }, 1);
  CHECK(forward(x)(0, 0) == 10);
  memory = 2;
  weight.written();
  CHECK_THROWS_AS(forward(x), value_error);
  forward.refresh();
  CHECK(forward(x)(0, 0) == 20);
  CHECK(evaluate(product(x, weight))(0, 0) == 20);
}

TEST_CASE("a compiled layer sees what was written to borrowed memory when it is refreshed",
          "[storage]") {
  float memory = 1;
  const tensor<float, 2> x({1, 1}, {10});
  const parameter<float, 2> weight = borrow(std::span(&memory, 1), {1, 1});
  auto forward = compile([&](const auto& in) { return product(in, weight); }, 1);
  CHECK(forward(x)(0, 0) == 10);
  for (const float number : {2.f, 3.f}) {
    memory = number;
    CHECK_NOTHROW(forward(x));  // no write was counted
    forward.refresh();
    CHECK(forward(x)(0, 0) == 10 * number);
    CHECK(evaluate(product(x, weight))(0, 0) == 10 * number);
  }
}

// Nothing is kept of a weight that is no parameter, so its memory may be written untold.
TEST_CASE("a plain tensor on borrowed memory is read anew", "[storage]") {
  float memory = 1;
  const tensor<float, 2> x({1, 1}, {10}), weight = borrow(std::span(&memory, 1), {1, 1});
  auto forward = compile([&](const auto& in) { return product(in, weight); }, 1);
  CHECK(forward(x)(0, 0) == 10);
  memory = 2;
  CHECK(evaluate(product(x, weight))(0, 0) == 20);
  forward.refresh();
  CHECK(forward(x)(0, 0) == 20);
}

}  // namespace
