/* SPDX-License-Identifier: MIT */
/* fmoe for C and for every language that calls C: layers of files, expressions, and calls of both.
 *
 * A function that can fail returns a status, and fmoe_last_error() has its sentence. No exception
 * leaves it. What a function makes is written to its last argument, or the last ones, which stay as
 * they were if it fails; free it by the function named so. Objects may be used by several threads
 * at once, but for fmoe_executable_keep, beside which no call of the same executable runs.
 *
 *   fmoe_layer* layer;
 *   fmoe_executable* forward;
 *   if (fmoe_layer_load("layer.safetensors", "", 0, &layer) != FMOE_OK ||
 *       fmoe_layer_compile(layer, 128, NULL, &forward) != FMOE_OK)
 *     return puts(fmoe_last_error());
 *   const size_t in[] = {128, 384}, out[] = {128, 384};
 *   const fmoe_array arrays[] = {{x, FMOE_FLOAT32, 2, in, NULL}, {y, FMOE_FLOAT32, 2, out, NULL}};
 *   if (fmoe_executable_run(forward, arrays, 2) != FMOE_OK) return puts(fmoe_last_error());
 */
#ifndef FMOE_C_FMOE_H
#define FMOE_C_FMOE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#if defined(FMOE_BUILDS_C)
#define FMOE_API __declspec(dllexport)
#else
#define FMOE_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define FMOE_API __attribute__((visibility("default")))
#else
#define FMOE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fmoe_status {
  FMOE_OK = 0,
  FMOE_SHAPE_ERROR = 1, /* shapes do not fit together */
  FMOE_VALUE_ERROR = 2, /* a value is outside its domain */
  FMOE_FILE_ERROR = 3,  /* a file cannot be read, or does not hold what is asked for */
  FMOE_OUT_OF_MEMORY = 4,
  FMOE_OTHER_ERROR = 5
} fmoe_status;

/* The sentence of the last function that failed on this thread; "" before there is one. It is valid
 * until the next one fails. */
FMOE_API const char* fmoe_last_error(void);

/* "major.minor.patch". */
FMOE_API const char* fmoe_version(void);

typedef enum fmoe_type {
  FMOE_FLOAT64 = 0,
  FMOE_FLOAT32 = 1,
  FMOE_BFLOAT16 = 2,
  FMOE_FLOAT16 = 3,
  FMOE_Q8 = 4, /* weights of 8 bits in blocks of 32: no type of an array */
  FMOE_Q8C = 5 /* weights of 8 bits with a scale for each column */
} fmoe_type;

/* An array of the caller on the host. Strides count elements; without them it is row-major. */
typedef struct fmoe_array {
  void* data;
  fmoe_type type;
  size_t rank;
  const size_t* shape;
  const size_t* strides; /* or NULL */
} fmoe_array;

/* How a plan is made. NULL stands for fmoe_default_options(). */
typedef struct fmoe_options {
  size_t threads; /* of a call, at most; 0: as many as there are */
  size_t callers; /* calls that may run at the same time; 0: any number */
  int naive;      /* contract parameters with each other first, to measure what factorizing saves */
  int screen;     /* select by 16-bit scores where that pays; the bits are the same */
  int tune;       /* run the most promising plans and keep the quickest */
  int reference;  /* the plain interpreter in double in place of the CPU's kernels */
} fmoe_options;
FMOE_API fmoe_options fmoe_default_options(void);

/* Lazy expressions. -------------------------------------------------------------------------- */

typedef struct fmoe_expression fmoe_expression;
FMOE_API void fmoe_expression_free(fmoe_expression* e);
FMOE_API size_t fmoe_expression_rank(const fmoe_expression* e);

/* An input of a compiled expression, number `index`, whose first axis counts tokens. */
FMOE_API fmoe_status fmoe_input(size_t index, size_t rank, fmoe_expression** made);
/* An array that is read where it lies, row-major, and outlives what is made of it. A parameter
 * belongs to a layer: its packed form is kept. */
FMOE_API fmoe_status fmoe_constant(const fmoe_array* array, int is_parameter,
                                   fmoe_expression** made);
/* "ti,io->to": multiplies all operands, and sums over labels that the result does not have. Blanks
 * do not count. Without an arrow, as in "ti,io", the result has the labels that occur once, in
 * alphabetical order. */
FMOE_API fmoe_status fmoe_einsum(const char* subscripts, const fmoe_expression* const* operands,
                                 size_t count, fmoe_expression** made);
/* A function of every element: relu, gelu, gelu_tanh, silu, sigmoid, squared_relu, exp, sqrt,
 * inverse_sqrt, negate, scale, shift, threshold, tanh, log, abs, at_least, at_most, quotient,
 * inverse, power. `parameter` is the factor of scale, the summand of shift, and so on. */
FMOE_API fmoe_status fmoe_apply(const char* function, const fmoe_expression* e, double parameter,
                                fmoe_expression** made);
/* add, subtract, multiply, divide, max or min of two operands, element by element. */
FMOE_API fmoe_status fmoe_join(const char* operation, const fmoe_expression* a,
                               const fmoe_expression* b, fmoe_expression** made);
/* a where the condition is above 0, else b. */
FMOE_API fmoe_status fmoe_where(const fmoe_expression* condition, const fmoe_expression* a,
                                const fmoe_expression* b, fmoe_expression** made);
/* A function of every row: softmax, entmax (its alpha is the parameter), layer_norm, rms_norm,
 * clamped_rms_norm (their epsilon), group_max (the number of groups), sparse_mixer (its jitter). */
FMOE_API fmoe_status fmoe_map_rows(const char* function, const fmoe_expression* e, double parameter,
                                   fmoe_expression** made);
FMOE_API fmoe_status fmoe_bounded_softmax(const fmoe_expression* scores,
                                          const fmoe_expression* bound, fmoe_expression** made);
/* The entries of the `active` best of `groups` groups of neighbours in each row; the others become
 * -infinity. `score` of a group: sum_of_two or greatest. */
FMOE_API fmoe_status fmoe_best_groups(const fmoe_expression* scores, size_t groups, size_t active,
                                      const char* score, fmoe_expression** made);
/* One number of every row: l1, l2, max or mean. */
FMOE_API fmoe_status fmoe_norm(const char* which, const fmoe_expression* e, fmoe_expression** made);
/* [...] -> [..., n]: each number n times. */
FMOE_API fmoe_status fmoe_repeat(const fmoe_expression* e, size_t n, fmoe_expression** made);
/* Selections along the last axis. `weights`: score, softmax, softmax_of_all, normalized, one or
 * relu. */
FMOE_API fmoe_status fmoe_top_k(const fmoe_expression* scores, size_t k, const char* weights,
                                fmoe_expression** made);
/* The scores at the places of the k greatest of `ranked`, which has their shape. */
FMOE_API fmoe_status fmoe_ranked_top_k(const fmoe_expression* scores, const fmoe_expression* ranked,
                                       size_t k, const char* weights, fmoe_expression** made);
FMOE_API fmoe_status fmoe_top_p(const fmoe_expression* scores, double mass, const char* weights,
                                fmoe_expression** made);
FMOE_API fmoe_status fmoe_nonzeros(const fmoe_expression* scores, fmoe_expression** made);
/* The scores above their thresholds, a number for each column, and 0 elsewhere (JumpReLU). */
FMOE_API fmoe_status fmoe_jump_relu(const fmoe_expression* scores,
                                    const fmoe_expression* thresholds, fmoe_expression** made);
/* `capacity` tokens of each expert; 0: tokens times factor over experts. */
FMOE_API fmoe_status fmoe_expert_choice(const fmoe_expression* scores,
                                        const fmoe_expression* ranked, const char* weights,
                                        size_t capacity, double factor, fmoe_expression** made);
FMOE_API fmoe_status fmoe_product_top_k(const fmoe_expression* scores, size_t k, size_t each,
                                        const char* weights, fmoe_expression** made);
/* The entries that a selection keeps. */
FMOE_API fmoe_status fmoe_kept_values(const fmoe_expression* selection, fmoe_expression** made);
FMOE_API fmoe_status fmoe_kept_indices(const fmoe_expression* selection, fmoe_expression** made);
FMOE_API fmoe_status fmoe_concat(const fmoe_expression* const* parts, size_t count, size_t axis,
                                 fmoe_expression** made);
FMOE_API fmoe_status fmoe_append_one(const fmoe_expression* e, fmoe_expression** made);
/* States the lengths of the axes of an expression, `rank` numbers; SIZE_MAX may be any. */
FMOE_API fmoe_status fmoe_sized(const fmoe_expression* e, const size_t* shape, size_t rank,
                                fmoe_expression** made);
/* An operand of einsum, [rows, columns]: 0 at `count` pairs of a row and a column, 1 elsewhere. */
FMOE_API fmoe_status fmoe_all_except(const size_t* pairs, size_t count, size_t rows, size_t columns,
                                     fmoe_expression** made);
/* The gradient of sum(y dy) with respect to a part of y. */
FMOE_API fmoe_status fmoe_gradient(const fmoe_expression* y, const fmoe_expression* of,
                                   const fmoe_expression* dy, fmoe_expression** made);

/* Expressions that are planned for calls of up to `tokens` rows of their inputs. --------------- */

typedef struct fmoe_executable fmoe_executable;
FMOE_API fmoe_status fmoe_compile(const fmoe_expression* const* results, size_t count,
                                  size_t tokens, const fmoe_options* options,
                                  fmoe_executable** made);
FMOE_API void fmoe_executable_free(fmoe_executable* e);
FMOE_API size_t fmoe_executable_inputs(const fmoe_executable* e);
FMOE_API size_t fmoe_executable_outputs(const fmoe_executable* e);
FMOE_API size_t fmoe_executable_tokens(const fmoe_executable* e);
/* The type of the results: FMOE_FLOAT32 or FMOE_FLOAT64. */
FMOE_API fmoe_type fmoe_executable_type(const fmoe_executable* e);
/* The shape of an array without the token axis; inputs come first, then outputs. The shape is valid
 * as long as the executable. */
FMOE_API fmoe_status fmoe_executable_shape(const fmoe_executable* e, size_t array, size_t* rank,
                                           const size_t** shape);
/* 0 for a result that is a sum over the tokens of a call. */
FMOE_API int fmoe_executable_has_tokens(const fmoe_executable* e, size_t output);
/* Computes the results. Arrays are the inputs, then the outputs; leading axes beyond those of a row
 * count tokens. A call that fails has written nothing. */
FMOE_API fmoe_status fmoe_executable_run(const fmoe_executable* e, const fmoe_array* arrays,
                                         size_t count);
/* Each top-k keeps k entries from now on. */
FMOE_API fmoe_status fmoe_executable_keep(fmoe_executable* e, size_t k);

/* The plan as text; free it with fmoe_text_free. */
FMOE_API fmoe_status fmoe_explain(const fmoe_expression* const* results, size_t count,
                                  size_t tokens, const fmoe_options* options, char** text);
FMOE_API void fmoe_text_free(char* text);

typedef struct fmoe_cost_figures {
  double multiply_adds; /* for each token */
  double once;          /* multiply-adds that make weights, for any tokens */
  double parameters;    /* numbers stored */
  double bytes;         /* read and written, for all tokens */
} fmoe_cost_figures;
typedef struct fmoe_cost_report {
  fmoe_cost_figures factorized, naive;
  double naive_multiply_adds; /* for each token, in closed form */
} fmoe_cost_report;
FMOE_API fmoe_status fmoe_cost(const fmoe_expression* e, size_t tokens, fmoe_cost_report* report);

/* Layers of files, of any kind. ---------------------------------------------------------------- */

typedef struct fmoe_layer fmoe_layer;
/* The one layer that a safetensors file or a checkpoint holds behind a prefix, "" for any. `active`
 * is K where the file does not say it, else 0. */
FMOE_API fmoe_status fmoe_layer_load(const char* file, const char* prefix, size_t active,
                                     fmoe_layer** made);
/* The same with what the file does not say: `metadata` are `pairs` keys, each with its text behind
 * it, as in {"K", "32", "activation", "gelu"}. A tensor of the layer that nothing reads is refused,
 * unless `extra` is not 0, which leaves it out. */
FMOE_API fmoe_status fmoe_layer_load_with(const char* file, const char* prefix,
                                          const char* const* metadata, size_t pairs, int extra,
                                          fmoe_layer** made);
/* The mixture of a released model's layer, whose folder or file is `model`, with weights of this
 * type. */
FMOE_API fmoe_status fmoe_layer_load_mixture(const char* model, size_t layer, fmoe_type type,
                                             fmoe_layer** made);
FMOE_API void fmoe_layer_free(fmoe_layer* layer);

/* Layers that are made of one and share its weights; free both. */

/* With weights of 8 bits: FMOE_Q8 or FMOE_Q8C. */
FMOE_API fmoe_status fmoe_layer_quantize(const fmoe_layer* layer, fmoe_type type,
                                         fmoe_layer** made);
/* With another K; SIZE_MAX selects nothing. */
FMOE_API fmoe_status fmoe_layer_with_active(const fmoe_layer* layer, size_t k, fmoe_layer** made);
/* Without these experts of a level. */
FMOE_API fmoe_status fmoe_layer_ablated(const fmoe_layer* layer, const size_t* experts,
                                        size_t count, size_t level, fmoe_layer** made);
/* A Monet layer without `count` experts, each a pair of halves. */
FMOE_API fmoe_status fmoe_layer_ablated_pairs(const fmoe_layer* layer, const size_t* pairs,
                                              size_t count, fmoe_layer** made);
/* The output plus `strength` times what expert n of a level adds with the coefficient 1; a muMoE is
 * steered by its gate. */
FMOE_API fmoe_status fmoe_layer_steered(const fmoe_layer* layer, size_t n, double strength,
                                        size_t level, fmoe_layer** made);
/* The output `head` plus `strength` times the product of `count` means, one for each expert, and
 * the coefficients. */
FMOE_API fmoe_status fmoe_layer_rewritten(const fmoe_layer* layer, size_t head, const double* mean,
                                          size_t count, double strength, size_t level,
                                          fmoe_layer** made);

/* The levels of experts; 0 for a layer without coefficients. */
FMOE_API size_t fmoe_layer_levels(const fmoe_layer* layer);
/* [token, input] -> [token, output]. A layer that needs a routing is refused. */
FMOE_API fmoe_status fmoe_layer_output(const fmoe_layer* layer, const fmoe_expression* x,
                                       fmoe_expression** made);
/* 1 for a layer of Monet that is not the first of its group: the router of the first layer routes
 * for it. 0 for any other layer. */
FMOE_API int fmoe_layer_needs_routing(const fmoe_layer* layer);
/* [token, input] -> [token, head, half] twice: what the router of a Monet layer gives to both
 * halves of its experts. */
FMOE_API fmoe_status fmoe_layer_routing(const fmoe_layer* layer, const fmoe_expression* x,
                                        fmoe_expression** g1, fmoe_expression** g2);
/* [token, input], [token, head, half] twice -> [token, output]: a Monet layer with the routing that
 * the first layer of its group makes of the x of that layer. */
FMOE_API fmoe_status fmoe_layer_routed_output(const fmoe_layer* layer, const fmoe_expression* x,
                                              const fmoe_expression* g1, const fmoe_expression* g2,
                                              fmoe_expression** made);
/* [token, input] -> [token, expert], of one level. */
FMOE_API fmoe_status fmoe_layer_coefficients(const fmoe_layer* layer, const fmoe_expression* x,
                                             size_t level, fmoe_expression** made);
/* [token, input] -> what the layer makes of it by this name: "y", "coefficients", "weights" and
 * "indices" of those that a selection keeps, and where the layer has them "scores",
 * "preactivations", "hidden", "contribution_norms", "g1" and "g2". */
FMOE_API fmoe_status fmoe_layer_result(const fmoe_layer* layer, const char* name,
                                       const fmoe_expression* x, fmoe_expression** made);
/* What expert n adds with the coefficient 1. */
FMOE_API fmoe_status fmoe_layer_expert_output(const fmoe_layer* layer, const fmoe_expression* x,
                                              size_t n, fmoe_expression** made);
/* The matrix of one expert, by a number for each level. */
FMOE_API fmoe_status fmoe_layer_expert(const fmoe_layer* layer, const size_t* n, size_t levels,
                                       fmoe_expression** made);
/* The output of one input, compiled. For a layer that needs a routing, pass the result of
 * fmoe_layer_routed_output to fmoe_compile. */
FMOE_API fmoe_status fmoe_layer_compile(const fmoe_layer* layer, size_t tokens,
                                        const fmoe_options* options, fmoe_executable** made);
FMOE_API fmoe_status fmoe_layer_save(const fmoe_layer* layer, const char* file);

#ifdef __cplusplus
}
#endif

#endif /* FMOE_C_FMOE_H */
