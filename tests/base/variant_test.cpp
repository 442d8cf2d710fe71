// SPDX-License-Identifier: MIT
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmoe/base/variant.hpp>
#include "../support/catch.hpp"

using namespace fmoe::detail;

namespace {

using number_or_text = variant<int, std::string, std::shared_ptr<int>>;

std::string text_of(const number_or_text& v) {
  return fmoe::detail::visit(
      []<class T>(const T& value) -> std::string {
        if constexpr (std::is_same_v<T, int>) return std::to_string(value);
        if constexpr (std::is_same_v<T, std::string>) return value;
        return "pointer";
      },
      v);
}

}  // namespace

TEST_CASE("a variant holds a value of one of its types") {
  number_or_text v = 3;
  CHECK(v.index() == 0);
  CHECK(holds_alternative<int>(v));
  CHECK(get<int>(v) == 3);
  CHECK(get_if<std::string>(&v) == nullptr);

  v = std::string(40, 'x');
  CHECK(v.index() == 1);
  CHECK_FALSE(holds_alternative<int>(v));
  CHECK(*get_if<std::string>(&v) == std::string(40, 'x'));
}

TEST_CASE("visit calls a function with the value, which it may change") {
  number_or_text v = std::string("seven");
  CHECK(text_of(v) == "seven");
  fmoe::detail::visit(
      []<class T>(T& value) {
        if constexpr (std::is_same_v<T, std::string>) value += "teen";
      },
      v);
  CHECK(text_of(v) == "seventeen");
  CHECK(text_of(number_or_text(7)) == "7");
}

TEST_CASE("a variant destroys a value once, whether it was copied, moved or replaced") {
  const auto counted = std::make_shared<int>(0);
  {
    number_or_text a = counted;
    const number_or_text b = a;
    CHECK(counted.use_count() == 3);
    const number_or_text c = std::move(a);
    CHECK(counted.use_count() == 3);
    a = b;
    CHECK(counted.use_count() == 4);
    a = *&a;  // to itself
    CHECK(counted.use_count() == 4);
    a = 1;
    CHECK(counted.use_count() == 3);
    std::vector<number_or_text> many(5, b);
    CHECK(counted.use_count() == 8);
    many.erase(many.begin());
    CHECK(counted.use_count() == 7);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("variants are equal if type and value are") {
  using same_numbers = variant<int, long>;
  CHECK(same_numbers(1) == same_numbers(1));
  CHECK_FALSE(same_numbers(1) == same_numbers(2));
  CHECK_FALSE(same_numbers(1) == same_numbers(1L));
}
