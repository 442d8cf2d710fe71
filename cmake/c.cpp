// SPDX-License-Identifier: MIT
// The shared library libfmoe: the functions of fmoe/c/fmoe.h.
#define FMOE_BUILDS_C
#include <fmoe/c/fmoe.h>

#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <fmoe/dynamic.hpp>
#include <fmoe/reference.hpp>
#include <fmoe/version.hpp>

struct fmoe_expression {
  fmoe::dynamic::expression hidden;
};
struct fmoe_executable {
  fmoe::dynamic::executable hidden;
};
struct fmoe_layer {
  fmoe::dynamic::layer hidden;
};

namespace fmoe::c {
namespace {

thread_local std::string last_error;

// Apart from the handlers that call it: in a shared library g++ 16.2 with -O1 asks for the place of
// a thread's variable at the start of a handler, and loses there what was caught.
FMOE_NOINLINE void remember(const char* sentence) { last_error = sentence; }

// Runs f, and turns what it throws into a status.
template <class F>
fmoe_status guarded(const F& f) noexcept {
  fmoe_status status = FMOE_OTHER_ERROR;
  try {
    try {
      f();
      return FMOE_OK;
    } catch (const shape_error& e) {
      status = FMOE_SHAPE_ERROR;
      remember(e.what());
    } catch (const value_error& e) {
      status = FMOE_VALUE_ERROR;
      remember(e.what());
    } catch (const io::error& e) {
      status = FMOE_FILE_ERROR;
      remember(e.what());
    } catch (const std::bad_alloc&) {
      status = FMOE_OUT_OF_MEMORY;
      remember("there is not enough memory");
    } catch (const std::exception& e) {
      remember(e.what());
    } catch (...) {
      remember("an unknown exception");
    }
  } catch (...) {  // the sentence itself found no memory
  }
  return status;
}

// Makes an object of the interface from what f returns.
template <class Object, class F>
fmoe_status making(Object** made, const F& f) noexcept {
  return guarded([&] {
    detail::expects<value_error>(made != nullptr, "[c] there is no place for what is made");
    *made = new Object{f()};
  });
}

dtype type_of(fmoe_type type) {
  detail::expects<value_error>(type >= FMOE_FLOAT64 && type <= FMOE_FLOAT16,
                               "[c] there is no fmoe_type ", static_cast<int>(type));
  return static_cast<dtype>(type);
}
static_assert(static_cast<int>(dtype::float64) == FMOE_FLOAT64 &&
              static_cast<int>(dtype::float32) == FMOE_FLOAT32 &&
              static_cast<int>(dtype::bfloat16) == FMOE_BFLOAT16 &&
              static_cast<int>(dtype::float16) == FMOE_FLOAT16);

// The type of weights.
dtype weights_of(fmoe_type type) {
  detail::expects<value_error>(type > FMOE_FLOAT64 && type <= FMOE_Q8C,
                               "[c] there is no fmoe_type ", static_cast<int>(type), " of weights");
  return static_cast<dtype>(type);
}
static_assert(static_cast<int>(dtype::q8) == FMOE_Q8 && static_cast<int>(dtype::q8c) == FMOE_Q8C);

// Numbers that a caller lists.
template <class T>
std::vector<T> listed(const T* numbers, size_t count) {
  detail::expects<value_error>(numbers != nullptr || count == 0, "[c] a list is a null pointer");
  return {numbers, numbers + count};
}
std::vector<index_pair> pairs(const size_t* numbers, size_t count) {
  detail::expects<value_error>(numbers != nullptr || count == 0, "[c] a list is a null pointer");
  std::vector<index_pair> all;
  for (size_t i = 0; i < count; ++i) all.push_back({numbers[2 * i], numbers[2 * i + 1]});
  return all;
}

dynamic::array array_of(const fmoe_array& a) {
  dynamic::array array{a.data, type_of(a.type), {a.shape, a.shape + a.rank}};
  if (a.strides != nullptr) array.strides.assign(a.strides, a.strides + a.rank);
  return array;
}

// Throws value_error for a null pointer, which is no object.
template <class Object>
const auto& hidden(const Object* o) {
  detail::expects<value_error>(o != nullptr, "[c] an argument is a null pointer");
  return o->hidden;
}
std::vector<dynamic::expression> hidden(const fmoe_expression* const* list, size_t count) {
  std::vector<dynamic::expression> all;
  for (size_t i = 0; i < count; ++i) all.push_back(hidden(list[i]));
  return all;
}
std::string text(const char* given) {
  detail::expects<value_error>(given != nullptr, "[c] a text is a null pointer");
  return given;
}

compile_options options_of(const fmoe_options* given) {
  const fmoe_options o = given != nullptr ? *given : fmoe_default_options();
  compile_options options;
  if (o.threads != 0) options.threads = o.threads;
  if (o.callers != 0) options.callers = o.callers;
  options.naive = o.naive != 0;
  options.screen = o.screen != 0;
  options.tune = o.tune != 0;
  if (o.reference != 0) options.on = reference();
  return options;
}

fmoe_cost_figures figures_of(const cost_figures& c) {
  return {c.multiply_adds, c.once, c.parameters, c.bytes};
}

}  // namespace
}  // namespace fmoe::c

extern "C" {

const char* fmoe_last_error(void) { return fmoe::c::last_error.c_str(); }

const char* fmoe_version(void) {
  using v = fmoe::version;
  static const std::string text =
      std::to_string(v::major) + '.' + std::to_string(v::minor) + '.' + std::to_string(v::patch);
  return text.c_str();
}

fmoe_options fmoe_default_options(void) { return {0, 0, 0, 1, 0, 0}; }

void fmoe_expression_free(fmoe_expression* e) { delete e; }
size_t fmoe_expression_rank(const fmoe_expression* e) { return e->hidden.rank(); }

fmoe_status fmoe_input(size_t index, size_t rank, fmoe_expression** made) {
  return fmoe::c::making(made, [&] { return fmoe::dynamic::input(index, rank); });
}
fmoe_status fmoe_constant(const fmoe_array* array, int is_parameter, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    fmoe::detail::expects<fmoe::value_error>(array != nullptr && array->strides == nullptr,
                                             "[constant] takes a row-major array");
    fmoe::dynamic::tensor t{
        fmoe::c::type_of(array->type), {array->shape, array->shape + array->rank}, nullptr};
    t.elements = std::make_shared<fmoe::storage>(
        array->data, fmoe::detail::element_count(t.shape) * fmoe::detail::size_of(t.type));
    return fmoe::dynamic::constant(t, is_parameter != 0);
  });
}
fmoe_status fmoe_einsum(const char* subscripts, const fmoe_expression* const* operands,
                        size_t count, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::einsum(fmoe::c::text(subscripts), fmoe::c::hidden(operands, count));
  });
}
fmoe_status fmoe_apply(const char* function, const fmoe_expression* e, double parameter,
                       fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    const auto f = fmoe::dynamic::pointwise_named(fmoe::c::text(function));
    return fmoe::dynamic::apply(f, fmoe::c::hidden(e), parameter);
  });
}
fmoe_status fmoe_join(const char* operation, const fmoe_expression* a, const fmoe_expression* b,
                      fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    const auto join = fmoe::dynamic::join_named(fmoe::c::text(operation));
    return join(fmoe::c::hidden(a), fmoe::c::hidden(b));
  });
}
fmoe_status fmoe_where(const fmoe_expression* condition, const fmoe_expression* a,
                       const fmoe_expression* b, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::where(fmoe::c::hidden(condition), fmoe::c::hidden(a), fmoe::c::hidden(b));
  });
}
fmoe_status fmoe_map_rows(const char* function, const fmoe_expression* e, double parameter,
                          fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    const auto f = fmoe::dynamic::row_function_named(fmoe::c::text(function));
    return fmoe::dynamic::map_rows(f, fmoe::c::hidden(e), parameter);
  });
}
fmoe_status fmoe_bounded_softmax(const fmoe_expression* scores, const fmoe_expression* bound,
                                 fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::bounded_softmax(fmoe::c::hidden(scores), fmoe::c::hidden(bound));
  });
}
fmoe_status fmoe_best_groups(const fmoe_expression* scores, size_t groups, size_t active,
                             const char* score, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::best_groups(fmoe::c::hidden(scores), groups, active,
                                      fmoe::dynamic::group_score_named(fmoe::c::text(score)));
  });
}
fmoe_status fmoe_norm(const char* which, const fmoe_expression* e, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::norm(fmoe::dynamic::row_norm_named(fmoe::c::text(which)),
                               fmoe::c::hidden(e));
  });
}
fmoe_status fmoe_repeat(const fmoe_expression* e, size_t n, fmoe_expression** made) {
  return fmoe::c::making(made, [&] { return fmoe::dynamic::repeat(fmoe::c::hidden(e), n); });
}
fmoe_status fmoe_top_k(const fmoe_expression* scores, size_t k, const char* weights,
                       fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::top_k(fmoe::c::hidden(scores), k,
                                fmoe::dynamic::weighting_named(fmoe::c::text(weights)));
  });
}
fmoe_status fmoe_ranked_top_k(const fmoe_expression* scores, const fmoe_expression* ranked,
                              size_t k, const char* weights, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::top_k(fmoe::c::hidden(scores), fmoe::c::hidden(ranked), k,
                                fmoe::dynamic::weighting_named(fmoe::c::text(weights)));
  });
}
fmoe_status fmoe_top_p(const fmoe_expression* scores, double mass, const char* weights,
                       fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::top_p(fmoe::c::hidden(scores), mass,
                                fmoe::dynamic::weighting_named(fmoe::c::text(weights)));
  });
}
fmoe_status fmoe_nonzeros(const fmoe_expression* scores, fmoe_expression** made) {
  return fmoe::c::making(made, [&] { return fmoe::dynamic::nonzeros(fmoe::c::hidden(scores)); });
}
fmoe_status fmoe_jump_relu(const fmoe_expression* scores, const fmoe_expression* thresholds,
                           fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::jump_relu(fmoe::c::hidden(scores), fmoe::c::hidden(thresholds));
  });
}
fmoe_status fmoe_expert_choice(const fmoe_expression* scores, const fmoe_expression* ranked,
                               const char* weights, size_t capacity, double factor,
                               fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::expert_choice(fmoe::c::hidden(scores), fmoe::c::hidden(ranked),
                                        fmoe::dynamic::weighting_named(fmoe::c::text(weights)),
                                        capacity == 0 ? fmoe::all : capacity, factor);
  });
}
fmoe_status fmoe_product_top_k(const fmoe_expression* scores, size_t k, size_t each,
                               const char* weights, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::product_top_k(fmoe::c::hidden(scores), k, each,
                                        fmoe::dynamic::weighting_named(fmoe::c::text(weights)));
  });
}
fmoe_status fmoe_kept_values(const fmoe_expression* selection, fmoe_expression** made) {
  return fmoe::c::making(made,
                         [&] { return fmoe::dynamic::kept_values(fmoe::c::hidden(selection)); });
}
fmoe_status fmoe_kept_indices(const fmoe_expression* selection, fmoe_expression** made) {
  return fmoe::c::making(made,
                         [&] { return fmoe::dynamic::kept_indices(fmoe::c::hidden(selection)); });
}
fmoe_status fmoe_concat(const fmoe_expression* const* parts, size_t count, size_t axis,
                        fmoe_expression** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::dynamic::concat(fmoe::c::hidden(parts, count), axis); });
}
fmoe_status fmoe_append_one(const fmoe_expression* e, fmoe_expression** made) {
  return fmoe::c::making(made, [&] { return fmoe::dynamic::append_one(fmoe::c::hidden(e)); });
}
fmoe_status fmoe_sized(const fmoe_expression* e, const size_t* shape, size_t rank,
                       fmoe_expression** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::dynamic::sized(fmoe::c::hidden(e), fmoe::c::listed(shape, rank)); });
}
fmoe_status fmoe_all_except(const size_t* pairs, size_t count, size_t rows, size_t columns,
                            fmoe_expression** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::dynamic::all_except(fmoe::c::pairs(pairs, count), rows, columns); });
}
fmoe_status fmoe_gradient(const fmoe_expression* y, const fmoe_expression* of,
                          const fmoe_expression* dy, fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::gradient(fmoe::c::hidden(y), fmoe::c::hidden(of), fmoe::c::hidden(dy));
  });
}

fmoe_status fmoe_compile(const fmoe_expression* const* results, size_t count, size_t tokens,
                         const fmoe_options* options, fmoe_executable** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::compile(fmoe::c::hidden(results, count), tokens,
                                  fmoe::c::options_of(options));
  });
}
void fmoe_executable_free(fmoe_executable* e) { delete e; }
size_t fmoe_executable_inputs(const fmoe_executable* e) { return e->hidden.inputs(); }
size_t fmoe_executable_outputs(const fmoe_executable* e) { return e->hidden.outputs(); }
size_t fmoe_executable_tokens(const fmoe_executable* e) { return e->hidden.tokens(); }
fmoe_type fmoe_executable_type(const fmoe_executable* e) {
  return static_cast<fmoe_type>(e->hidden.type());
}
fmoe_status fmoe_executable_shape(const fmoe_executable* e, size_t array, size_t* rank,
                                  const size_t** shape) {
  return fmoe::c::guarded([&] {
    const auto& of = fmoe::c::hidden(e);
    const size_t in = of.inputs(), count = in + of.outputs();
    fmoe::detail::expects<fmoe::value_error>(array < count, "[c] there is no array ", array,
                                             " among ", count);
    const std::vector<size_t>& row =
        array < in ? of.input_shape(array) : of.output_shape(array - in);
    *rank = row.size();
    *shape = row.data();
  });
}
int fmoe_executable_has_tokens(const fmoe_executable* e, size_t output) {
  return e->hidden.has_tokens(output);
}
fmoe_status fmoe_executable_run(const fmoe_executable* e, const fmoe_array* arrays, size_t count) {
  return fmoe::c::guarded([&] {
    std::vector<fmoe::dynamic::array> all;
    for (size_t i = 0; i < count; ++i) all.push_back(fmoe::c::array_of(arrays[i]));
    fmoe::c::hidden(e)(all);
  });
}
fmoe_status fmoe_executable_keep(fmoe_executable* e, size_t k) {
  return fmoe::c::guarded([&] { e->hidden.keep(k); });
}

fmoe_status fmoe_explain(const fmoe_expression* const* results, size_t count, size_t tokens,
                         const fmoe_options* options, char** text) {
  return fmoe::c::guarded([&] {
    const std::string plan = fmoe::dynamic::explain(fmoe::c::hidden(results, count), tokens,
                                                    fmoe::c::options_of(options))
                                 .text;
    *text = std::strcpy(new char[plan.size() + 1], plan.c_str());
  });
}
void fmoe_text_free(char* text) { delete[] text; }
fmoe_status fmoe_cost(const fmoe_expression* e, size_t tokens, fmoe_cost_report* report) {
  return fmoe::c::guarded([&] {
    const auto c = fmoe::dynamic::cost(fmoe::c::hidden(e), tokens);
    *report = {fmoe::c::figures_of(c.factorized), fmoe::c::figures_of(c.naive),
               c.naive_multiply_adds};
  });
}

fmoe_status fmoe_layer_load(const char* file, const char* prefix, size_t active,
                            fmoe_layer** made) {
  return fmoe::c::making(made, [&] {
    fmoe::load_options options;
    options.prefix = fmoe::c::text(prefix);
    if (active != 0) options.active = active;
    return fmoe::dynamic::load(std::filesystem::path(fmoe::c::text(file)), options);
  });
}
fmoe_status fmoe_layer_load_with(const char* file, const char* prefix, const char* const* metadata,
                                 size_t pairs, int extra, fmoe_layer** made) {
  return fmoe::c::making(made, [&] {
    std::vector<std::string> left_out;
    fmoe::load_options options;
    options.prefix = fmoe::c::text(prefix);
    if (extra != 0) options.extra = &left_out;
    for (size_t i = 0; i < pairs; ++i)
      options.metadata[fmoe::c::text(metadata[2 * i])] = fmoe::c::text(metadata[2 * i + 1]);
    return fmoe::dynamic::load(std::filesystem::path(fmoe::c::text(file)), options);
  });
}
fmoe_status fmoe_layer_load_mixture(const char* model, size_t layer, fmoe_type type,
                                    fmoe_layer** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::load_mixture(fmoe::c::text(model), layer, fmoe::c::weights_of(type));
  });
}
void fmoe_layer_free(fmoe_layer* layer) { delete layer; }
fmoe_status fmoe_layer_quantize(const fmoe_layer* layer, fmoe_type type, fmoe_layer** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::c::hidden(layer).quantize(fmoe::c::weights_of(type)); });
}
fmoe_status fmoe_layer_with_active(const fmoe_layer* layer, size_t k, fmoe_layer** made) {
  return fmoe::c::making(made, [&] { return fmoe::c::hidden(layer).with_active(k); });
}
fmoe_status fmoe_layer_ablated(const fmoe_layer* layer, const size_t* experts, size_t count,
                               size_t level, fmoe_layer** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::c::hidden(layer).ablated(fmoe::c::listed(experts, count), level); });
}
fmoe_status fmoe_layer_ablated_pairs(const fmoe_layer* layer, const size_t* pairs, size_t count,
                                     fmoe_layer** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::c::hidden(layer).ablated_pairs(fmoe::c::pairs(pairs, count)); });
}
fmoe_status fmoe_layer_steered(const fmoe_layer* layer, size_t n, double strength, size_t level,
                               fmoe_layer** made) {
  return fmoe::c::making(made, [&] { return fmoe::c::hidden(layer).steered(n, strength, level); });
}
fmoe_status fmoe_layer_rewritten(const fmoe_layer* layer, size_t head, const double* mean,
                                 size_t count, double strength, size_t level, fmoe_layer** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::c::hidden(layer).rewritten(head, fmoe::c::listed(mean, count), strength, level);
  });
}
size_t fmoe_layer_levels(const fmoe_layer* layer) { return layer->hidden.levels(); }
fmoe_status fmoe_layer_output(const fmoe_layer* layer, const fmoe_expression* x,
                              fmoe_expression** made) {
  return fmoe::c::making(made, [&] { return fmoe::c::hidden(layer)(fmoe::c::hidden(x)); });
}
int fmoe_layer_needs_routing(const fmoe_layer* layer) { return layer->hidden.needs_routing(); }
fmoe_status fmoe_layer_routing(const fmoe_layer* layer, const fmoe_expression* x,
                               fmoe_expression** g1, fmoe_expression** g2) {
  return fmoe::c::guarded([&] {
    fmoe::detail::expects<fmoe::value_error>(g1 != nullptr && g2 != nullptr,
                                             "[c] there is no place for what is made");
    const auto made = fmoe::c::hidden(layer).routing(fmoe::c::hidden(x));
    auto first = std::make_unique<fmoe_expression>(fmoe_expression{made.first});
    *g2 = new fmoe_expression{made.second};
    *g1 = first.release();
  });
}
fmoe_status fmoe_layer_routed_output(const fmoe_layer* layer, const fmoe_expression* x,
                                     const fmoe_expression* g1, const fmoe_expression* g2,
                                     fmoe_expression** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::c::hidden(layer)(fmoe::c::hidden(x), {fmoe::c::hidden(g1), fmoe::c::hidden(g2)});
  });
}
fmoe_status fmoe_layer_coefficients(const fmoe_layer* layer, const fmoe_expression* x, size_t level,
                                    fmoe_expression** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::c::hidden(layer).coefficients(fmoe::c::hidden(x), level); });
}
fmoe_status fmoe_layer_result(const fmoe_layer* layer, const char* name, const fmoe_expression* x,
                              fmoe_expression** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::c::hidden(layer).result(fmoe::c::text(name), fmoe::c::hidden(x)); });
}
fmoe_status fmoe_layer_expert_output(const fmoe_layer* layer, const fmoe_expression* x, size_t n,
                                     fmoe_expression** made) {
  return fmoe::c::making(
      made, [&] { return fmoe::c::hidden(layer).expert_output(fmoe::c::hidden(x), n); });
}
fmoe_status fmoe_layer_expert(const fmoe_layer* layer, const size_t* n, size_t levels,
                              fmoe_expression** made) {
  return fmoe::c::making(made, [&] { return fmoe::c::hidden(layer).expert({n, n + levels}); });
}
fmoe_status fmoe_layer_compile(const fmoe_layer* layer, size_t tokens, const fmoe_options* options,
                               fmoe_executable** made) {
  return fmoe::c::making(made, [&] {
    return fmoe::dynamic::compile({fmoe::c::hidden(layer)(fmoe::dynamic::input(0))}, tokens,
                                  fmoe::c::options_of(options));
  });
}
fmoe_status fmoe_layer_save(const fmoe_layer* layer, const char* file) {
  return fmoe::c::guarded([&] { fmoe::c::hidden(layer).save(fmoe::c::text(file)); });
}

}  // extern "C"
