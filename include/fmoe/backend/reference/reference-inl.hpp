// SPDX-License-Identifier: MIT
// The reference backend's executable: it binds a call's arrays and interprets the program.
#pragma once

#include <fmoe/arrays/rows.hpp>
#include <fmoe/backend/backend-inl.hpp>
#include <fmoe/backend/reference/interpreter.hpp>
#include <fmoe/backend/reference/reference.hpp>

namespace fmoe::reference_backend {

class program_runner final : public executable {
 public:
  explicit program_runner(planner::program p) : program_(std::move(p)) {
    for (const ir::leaf_node& leaf : program_.leaves)
      leaves_.push_back(leaf.argument >= 0 ? nullptr : stored(leaf));
  }

  bool refresh(std::span<const ir::leaf_node> leaves, std::span<const bool> changed) override {
    for (extent i = 0; i < leaves.size(); ++i) {
      if (!changed[i]) continue;
      program_.leaves[i].data = leaves[i].data;
      leaves_[i] = stored(program_.leaves[i]);
    }
    return true;
  }

 private:
  void run_here(const call_arrays& call) const override {
    auto leaves = leaves_;
    for (extent i = 0; i < leaves.size(); ++i)
      if (const int number = program_.leaves[i].argument; number >= 0)
        leaves[i] = bound(call.arguments[static_cast<extent>(number)], call.tokens);
    interpreter interpreted(program_, leaves, call.tokens, call.keep);
    interpreted.run();
    for (extent i = 0; i < call.results.size(); ++i) {
      const array& made = interpreted[program_.results[i]];
      for (extent r = 0; r < made.rows; ++r) detail::write_row(made.row(r), call.results[i], r);
    }
  }

  // Returns the leaf's own elements, with one row for each token if it has tokens.
  std::shared_ptr<array> stored(const ir::leaf_node& leaf) const {
    const auto has_leaf = [&](const planner::value& v) {
      return v.leaf && &program_.leaves[*v.leaf] == &leaf;
    };
    const auto value = std::ranges::find_if(program_.values, has_leaf);
    const bool has_rows = program_.tokens && value != program_.values.end() && value->per_token();
    const extent n = element_count(leaf.shape), rows = has_rows ? leaf.shape[0] : 1;
    auto elements = std::make_shared<array>(rows, rows == 0 ? 0 : n / rows);
    copy_numbers(leaf.numbers(), elements->numbers.data());
    return elements;
  }

  static std::shared_ptr<array> bound(const bound_array& x, extent tokens) {
    auto elements = std::make_shared<array>(tokens, x.row_size());
    for (extent t = 0; t < tokens; ++t) detail::read_row(x, t, elements->row(t));
    return elements;
  }

  planner::program program_;
  vector<std::shared_ptr<array>> leaves_;  // null if a call binds them
};

class reference final : public backend {
 public:
  std::string name() const override { return "reference"; }
  fmoe::machine machine(dtype) const override {
    fmoe::machine m;
    m.name = "plain loops in double";
    return m;
  }
  std::optional<std::string> refusal(const planner::operation&) const override { return {}; }

 private:
  std::unique_ptr<executable> compiled(const job& work) const override {
    return std::make_unique<program_runner>(work.program);
  }
  description explained(const job& work) const override {
    std::string steps;
    for (const planner::operation& o : work.program.operations)
      steps +=
          "  " + std::string(planner::name_of(o)) + "  " + planner::text_of(work.program, o) + '\n';
    return {"", steps, ""};
  }
};

}  // namespace fmoe::reference_backend

namespace fmoe {

template <class Level>
std::shared_ptr<const backend> reference() {
  static const auto one = std::make_shared<const reference_backend::reference>();
  return one;
}

}  // namespace fmoe
