/* SPDX-License-Identifier: MIT */
/* Runs a released layer, the same equation of expressions, and a group of Monet's layers, by the C interface alone. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fmoe/c/fmoe.h>

static int failures = 0;

static void expect(int is_so, const char* what) {
  if (is_so) return;
  ++failures;
  printf("wrong: %s (the last error is \"%s\")\n", what, fmoe_last_error());
}
static void good(fmoe_status status, const char* what) { expect(status == FMOE_OK, what); }

enum { tokens = 6, inputs = 384, outputs = 384, experts = 5 };

static fmoe_array matrix(float* data, const size_t* shape) {
  const fmoe_array a = {data, FMOE_FLOAT32, 2, shape, NULL};
  return a;
}

/* x relu(x)' as "ti,si->ts", compared with loops. */
static void run_expressions(void) {
  float w[experts * inputs], x[tokens * inputs], y[tokens * experts];
  const size_t w_shape[] = {experts, inputs}, x_shape[] = {tokens, inputs}, y_shape[] = {tokens, experts};
  for (size_t i = 0; i < sizeof w / sizeof *w; ++i) w[i] = (float)(i % 7) - 3;
  for (size_t i = 0; i < sizeof x / sizeof *x; ++i) x[i] = (float)(i % 11) - 5;

  fmoe_expression *in, *weight, *positive, *product, *best;
  const fmoe_array stored = matrix(w, w_shape);
  good(fmoe_input(0, 2, &in), "an input");
  good(fmoe_constant(&stored, 1, &weight), "a constant");
  good(fmoe_apply("relu", weight, 0, &positive), "relu");
  const fmoe_expression* operands[] = {in, positive};
  good(fmoe_einsum("ti, si -> ts", operands, 2, &product), "an einsum");
  good(fmoe_top_k(product, 2, "score", &best), "a selection");
  expect(fmoe_expression_rank(best) == 2, "the rank");

  fmoe_executable* forward;
  const fmoe_expression* results[] = {best};
  fmoe_options options = fmoe_default_options();
  options.threads = 1;
  good(fmoe_compile(results, 1, tokens, &options, &forward), "compile");
  expect(fmoe_executable_inputs(forward) == 1 && fmoe_executable_outputs(forward) == 1 &&
             fmoe_executable_tokens(forward) == tokens &&
             fmoe_executable_type(forward) == FMOE_FLOAT32 && fmoe_executable_has_tokens(forward, 0),
         "what an executable says of itself");
  size_t rank = 0;
  const size_t* row = NULL;
  good(fmoe_executable_shape(forward, 1, &rank, &row), "a shape");
  expect(rank == 1 && row[0] == experts, "the shape of a row");
  const fmoe_array arrays[] = {matrix(x, x_shape), matrix(y, y_shape)};
  good(fmoe_executable_run(forward, arrays, 2), "a call");
  for (int t = 0; t < tokens; ++t) {
    float sums[experts];
    for (int s = 0; s < experts; ++s) {
      sums[s] = 0;
      for (int i = 0; i < inputs; ++i)
        sums[s] += x[t * inputs + i] * (w[s * inputs + i] > 0 ? w[s * inputs + i] : 0);
    }
    for (int s = 0; s < experts; ++s) {
      int before = 0;
      for (int r = 0; r < experts; ++r) before += sums[r] > sums[s] || (sums[r] == sums[s] && r < s);
      expect(y[t * experts + s] == (before < 2 ? sums[s] : 0), "a sum");
    }
  }

  char* plan = NULL;
  good(fmoe_explain(results, 1, tokens, NULL, &plan), "explain");
  expect(plan != NULL && strstr(plan, "2 of 5") != NULL, "the plan names the selection");
  fmoe_text_free(plan);
  fmoe_cost_report work;
  good(fmoe_cost(product, tokens, &work), "cost");
  expect(work.factorized.multiply_adds == inputs * experts, "multiply-adds of a token");

  fmoe_expression* none = NULL;
  expect(fmoe_einsum("ti,so->to", operands, 1, &none) == FMOE_VALUE_ERROR && none == NULL &&
             strstr(fmoe_last_error(), "names 2 operands and there are 1") != NULL,
         "a wrong number of operands");
  expect(fmoe_apply("rule", in, 0, &none) == FMOE_VALUE_ERROR &&
             strstr(fmoe_last_error(), "there is no \"rule\" among relu") != NULL,
         "a function that does not exist");
  expect(fmoe_executable_run(forward, arrays, 1) == FMOE_VALUE_ERROR, "a call without an output");
  const fmoe_array turned[] = {matrix(y, y_shape), matrix(x, x_shape)};
  expect(fmoe_executable_run(forward, turned, 2) == FMOE_SHAPE_ERROR, "arrays in a wrong order");
  expect(fmoe_executable_shape(forward, 2, &rank, &row) == FMOE_VALUE_ERROR, "an array too many");
  expect(fmoe_apply("relu", NULL, 0, &none) == FMOE_VALUE_ERROR, "a null pointer");

  fmoe_executable_free(forward);
  fmoe_expression_free(best);
  fmoe_expression_free(product);
  fmoe_expression_free(positive);
  fmoe_expression_free(weight);
  fmoe_expression_free(in);
}

/* The value of an expression of one input [rows, columns] that has as many rows, and frees the expression. */
static void value_of(fmoe_expression* e, const float* x, size_t rows_of_x, size_t columns, float* y, size_t row) {
  fmoe_executable* forward = NULL;
  const fmoe_expression* results[] = {e};
  const size_t x_shape[] = {rows_of_x, columns}, y_shape[] = {rows_of_x, row};
  good(fmoe_compile(results, 1, rows_of_x, NULL, &forward), "compile an operation");
  const fmoe_array arrays[] = {matrix((float*)x, x_shape), matrix(y, y_shape)};
  if (forward != NULL) good(fmoe_executable_run(forward, arrays, 2), "run an operation");
  fmoe_executable_free(forward);
  fmoe_expression_free(e);
}
static int are(const float* y, const float* wanted, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (y[i] != wanted[i]) return 0;
  return 1;
}

/* Operations on rows of six numbers. */
static void run_operations(void) {
  const float x[] = {9, 0, 0, 5, 5, 0};
  float y[12];
  fmoe_expression *rows_of_any, *in, *negative, *made = NULL, *mean, *mask;
  const size_t shape[] = {SIZE_MAX, 6}, left_out[] = {0, 1, 1, 0};
  good(fmoe_input(0, 2, &rows_of_any), "an input");
  good(fmoe_sized(rows_of_any, shape, 2, &in), "its size");
  expect(fmoe_sized(rows_of_any, shape, 1, &made) == FMOE_SHAPE_ERROR, "a size of another rank");
  good(fmoe_apply("negate", in, 0, &negative), "negate");
  good(fmoe_ranked_top_k(in, negative, 3, "score", &made), "a ranked selection");
  value_of(made, x, 1, 6, y, 6);
  expect(are(y, (const float[]){0, 0, 0, 0, 0, 0}, 6), "the three least of a row, which are 0");
  good(fmoe_ranked_top_k(in, negative, 4, "one", &made), "a ranked selection of ones");
  value_of(made, x, 1, 6, y, 6);
  expect(are(y, (const float[]){0, 1, 1, 1, 0, 1}, 6), "1 at the four least, of equal ones the first");
  good(fmoe_best_groups(in, 2, 1, "sum_of_two", &made), "the best group");
  value_of(made, x, 1, 6, y, 6);
  expect(are(y + 3, x + 3, 3) && y[0] == -INFINITY, "10 is more than 9");
  good(fmoe_norm("mean", in, &mean), "a mean");
  good(fmoe_repeat(mean, 2, &made), "a mean twice");
  value_of(made, x, 1, 6, y, 2);
  expect(fabsf(y[0] - 19.0f / 6) < 1e-6f && y[1] == y[0], "the numbers of a repeated mean");
  const float bounds[] = {5, 5, 5, 5, 4, -1};
  const size_t six[] = {6};
  const fmoe_array of_columns = {(float*)bounds, FMOE_FLOAT32, 1, six, NULL};
  fmoe_expression* thresholds;
  good(fmoe_constant(&of_columns, 0, &thresholds), "thresholds");
  good(fmoe_jump_relu(in, thresholds, &made), "a JumpReLU");
  value_of(made, x, 1, 6, y, 6);
  expect(are(y, (const float[]){9, 0, 0, 0, 5, 0}, 6), "what is above its threshold");
  expect(fmoe_jump_relu(thresholds, in, &made) == FMOE_SHAPE_ERROR, "thresholds of more axes");
  fmoe_expression_free(thresholds);
  good(fmoe_all_except(left_out, 2, 2, 2, &mask), "pairs left out");
  const float matrix_of_two[] = {1, 2, 3, 4};
  const size_t two[] = {2, 2};
  const fmoe_array stored = matrix((float*)matrix_of_two, two);
  fmoe_expression* weight;
  good(fmoe_constant(&stored, 0, &weight), "a constant");
  const fmoe_expression* operands[] = {rows_of_any, weight, mask};
  good(fmoe_einsum("ti,ij,ij->tj", operands, 3, &made), "a sum without pairs");
  value_of(made, (const float[]){5, 7, 11, 13}, 2, 2, y, 2);
  expect(are(y, (const float[]){5, 28, 11, 52}, 4), "x_ti w_ij over the pairs i = j alone");
  expect(fmoe_all_except(left_out, 2, 1, 2, &made) == FMOE_VALUE_ERROR, "a pair outside");
  expect(fmoe_all_except(NULL, 2, 2, 2, &made) == FMOE_VALUE_ERROR, "a list that is a null pointer");
  fmoe_expression_free(weight);
  fmoe_expression_free(mask);
  fmoe_expression_free(mean);
  fmoe_expression_free(negative);
  fmoe_expression_free(in);
  fmoe_expression_free(rows_of_any);
}

/* y and coefficients of a layer, all tokens at once. */
static void output_of(const fmoe_layer* layer, const float* x, size_t width, float* y, size_t out) {
  fmoe_expression *in, *made = NULL;
  good(fmoe_input(0, 2, &in), "an input");
  good(fmoe_layer_output(layer, in, &made), "the output of a changed layer");
  if (made != NULL) value_of(made, x, tokens, width, y, out);
  fmoe_expression_free(in);
}
static float most_apart(const float* a, const float* b, size_t count) {
  float most = 0;
  for (size_t i = 0; i < count; ++i) most = fmaxf(most, fabsf(a[i] - b[i]));
  return most;
}

/* Layers that are made of one: with weights of 8 bits, another K, and edits. */
static void change_layer(void) {
  fmoe_layer *layer = NULL, *changed = NULL, *again = NULL;
  good(fmoe_layer_load("examples/data/minilm_l3_mxd_bf16.safetensors", "", 0, &layer), "load");
  if (layer == NULL) return;
  enum { count = tokens * outputs };
  static float x[tokens * inputs], y[count], other[count], twice[count], added[count];
  static const float nothing[count];
  for (size_t i = 0; i < sizeof x / sizeof *x; ++i) x[i] = (float)sin((double)i);
  output_of(layer, x, inputs, y, outputs);

  good(fmoe_layer_quantize(layer, FMOE_Q8, &changed), "quantize");
  output_of(changed, x, inputs, other, outputs);
  const float off = most_apart(y, other, count), most = most_apart(y, nothing, count);
  expect(off > 0 && off < 0.2f * most, "weights of 8 bits are near, though a token may select another expert");
  expect(fmoe_layer_quantize(changed, FMOE_Q8, &again) == FMOE_VALUE_ERROR, "quantize twice");
  expect(fmoe_layer_quantize(layer, FMOE_FLOAT32, &again) == FMOE_VALUE_ERROR, "quantize to floats");
  expect(fmoe_layer_quantize(layer, FMOE_FLOAT64, &again) == FMOE_VALUE_ERROR, "a type of no weights");
  fmoe_layer_free(changed);

  good(fmoe_layer_with_active(layer, 1, &changed), "another K");
  output_of(changed, x, inputs, other, outputs);
  expect(most_apart(y, other, count) > 0, "one expert is not all of them");
  fmoe_layer_free(changed);
  expect(fmoe_layer_with_active(layer, 0, &again) == FMOE_VALUE_ERROR, "no expert at all");

  /* y + 2 E_n(x) is as far from y + E_n(x) as that from y. */
  good(fmoe_layer_steered(layer, 3, 1, 0, &changed), "steer");
  good(fmoe_layer_steered(layer, 3, 2, 0, &again), "steer twice as far");
  output_of(changed, x, inputs, other, outputs);
  output_of(again, x, inputs, twice, outputs);
  for (int i = 0; i < count; ++i) added[i] = 2 * other[i] - y[i];
  expect(most_apart(other, y, count) > 0 && most_apart(twice, added, count) < 1e-4f, "steering is linear");
  fmoe_layer_free(again);
  fmoe_layer_free(changed);

  /* Without experts that no token has, nothing changes; without those of the first token, it does. */
  fmoe_expression *in, *coefficients;
  good(fmoe_input(0, 2, &in), "an input");
  good(fmoe_layer_coefficients(layer, in, 0, &coefficients), "coefficients");
  static float a[tokens * 8192];
  fmoe_executable* forward = NULL;
  const fmoe_expression* results[] = {coefficients};
  good(fmoe_compile(results, 1, tokens, NULL, &forward), "compile the coefficients");
  size_t rank = 0;
  const size_t* row = NULL;
  good(fmoe_executable_shape(forward, 1, &rank, &row), "how many experts there are");
  const size_t n = row[0], x_shape[] = {tokens, inputs}, a_shape[] = {tokens, n};
  expect(n <= 8192, "room for the coefficients");
  const fmoe_array arrays[] = {matrix(x, x_shape), matrix(a, a_shape)};
  good(fmoe_executable_run(forward, arrays, 2), "run them");
  /* By their name they are the same. */
  fmoe_expression* named;
  good(fmoe_layer_result(layer, "coefficients", in, &named), "coefficients by their name");
  static float same[tokens * 8192];
  fmoe_executable* by_name = NULL;
  const fmoe_expression* named_results[] = {named};
  good(fmoe_compile(named_results, 1, tokens, NULL, &by_name), "compile them");
  const fmoe_array named_arrays[] = {matrix(x, x_shape), matrix(same, a_shape)};
  good(fmoe_executable_run(by_name, named_arrays, 2), "run them");
  expect(memcmp(a, same, tokens * n * sizeof(float)) == 0, "the same coefficients");
  fmoe_executable_free(by_name);
  fmoe_expression_free(named);
  expect(fmoe_layer_result(layer, "coefs", in, &named) == FMOE_VALUE_ERROR, "no such name");

  size_t used = n, unused = n;
  for (size_t i = 0; i < n; ++i) {
    int tokens_of = 0;
    for (size_t t = 0; t < tokens; ++t) tokens_of += a[t * n + i] != 0;
    if (tokens_of == 0) unused = i;
    else used = i;
  }
  expect(used < n && unused < n, "experts of both kinds");
  good(fmoe_layer_ablated(layer, &unused, 1, 0, &changed), "ablate an expert that no token has");
  output_of(changed, x, inputs, other, outputs);
  expect(most_apart(y, other, count) == 0, "nothing changes");
  fmoe_layer_free(changed);
  good(fmoe_layer_ablated(layer, &used, 1, 0, &changed), "ablate an expert");
  output_of(changed, x, inputs, other, outputs);
  expect(most_apart(y, other, count) > 0, "y changes");
  fmoe_layer_free(changed);
  expect(fmoe_layer_ablated(layer, &n, 1, 0, &again) == FMOE_VALUE_ERROR, "no such expert");
  expect(fmoe_layer_ablated_pairs(layer, (const size_t[]){0, 1}, 1, &again) == FMOE_VALUE_ERROR, "pairs of another kind");

  /* One output moves by the strength times the sum of the coefficients, if all means are 1. */
  static double means[8192];
  for (size_t i = 0; i < n; ++i) means[i] = 1;
  good(fmoe_layer_rewritten(layer, 7, means, n, 0.5, 0, &changed), "rewrite");
  output_of(changed, x, inputs, other, outputs);
  for (size_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += a[t * n + i];
    y[t * outputs + 7] += (float)(0.5 * sum);
  }
  expect(most_apart(y, other, count) < 1e-4f, "one output is rewritten");
  fmoe_layer_free(changed);
  fmoe_executable_free(forward);
  fmoe_expression_free(coefficients);
  fmoe_expression_free(in);
  fmoe_layer_free(layer);
}

/* A mixture of a released model's layer. */
static void load_a_mixture(void) {
  fmoe_layer *mixture = NULL, *small = NULL;
  good(fmoe_layer_load_mixture("tests/mixtures/olmoe", 1, FMOE_FLOAT32, &mixture), "load a mixture");
  expect(mixture != NULL && fmoe_layer_levels(mixture) == 1, "its levels");
  expect(fmoe_layer_load_mixture("tests/mixtures/olmoe", 1, FMOE_FLOAT64, &small) == FMOE_VALUE_ERROR && small == NULL,
         "a mixture of doubles");
  expect(fmoe_layer_load_mixture("nowhere", 0, FMOE_FLOAT32, &small) == FMOE_FILE_ERROR && small == NULL,
         "a model that does not exist");
  fmoe_layer_free(mixture);
}

/* What a file does not say is said, and a tensor that nothing reads is left out by leave alone. */
static void load_with_settings(void) {
  const char* const file = "tests/golden/mxd/mxd_glu_silu_k4.weights.safetensors";
  const char* const metadata[] = {"K", "4", "activation", "silu"};
  fmoe_layer* layer = NULL;
  expect(fmoe_layer_load(file, "", 4, &layer) == FMOE_FILE_ERROR && layer == NULL &&
             strstr(fmoe_last_error(), "does not say \"activation\"") != NULL,
         "a file without an activation");
  expect(fmoe_layer_load_with(file, "", metadata, 1, 0, &layer) == FMOE_FILE_ERROR, "one pair of two");
  good(fmoe_layer_load_with(file, "", metadata, 2, 0, &layer), "load with what is said");
  fmoe_layer_free(layer);
  layer = NULL;
  const char* const joined = "tests/io/layer_with_more.safetensors";
  expect(fmoe_layer_load_with(joined, "", metadata, 2, 0, &layer) == FMOE_FILE_ERROR && layer == NULL &&
             strstr(fmoe_last_error(), "tensor \"more\" is not read") != NULL,
         "a tensor that nothing reads");
  good(fmoe_layer_load_with(joined, "", metadata, 2, 1, &layer), "leave it out");
  fmoe_layer_free(layer);
}

/* The released layer and the einsums of its equation give the same numbers. */
static void run_layer(void) {
  fmoe_layer* layer = NULL;
  expect(fmoe_layer_load("nowhere.safetensors", "", 0, &layer) == FMOE_FILE_ERROR && layer == NULL,
         "a file that does not exist");
  good(fmoe_layer_load("examples/data/minilm_l3_mxd_bf16.safetensors", "", 0, &layer), "load");
  if (layer == NULL) return;
  expect(fmoe_layer_levels(layer) == 1, "its levels");

  static float x[tokens * inputs], y[tokens * outputs], z[tokens * outputs];
  const size_t x_shape[] = {tokens, inputs}, y_shape[] = {tokens, outputs};
  for (size_t i = 0; i < sizeof x / sizeof *x; ++i) x[i] = (float)sin((double)i);
  const fmoe_array arrays[] = {matrix(x, x_shape), matrix(y, y_shape)};
  fmoe_executable* forward;
  good(fmoe_layer_compile(layer, tokens, NULL, &forward), "compile a layer");
  good(fmoe_executable_run(forward, arrays, 2), "run a layer");

  fmoe_expression *in, *out;
  good(fmoe_input(0, 2, &in), "an input");
  good(fmoe_layer_output(layer, in, &out), "the output of a layer");
  fmoe_executable* plain;
  fmoe_options options = fmoe_default_options();
  options.reference = 1;
  const fmoe_expression* results[] = {out};
  good(fmoe_compile(results, 1, tokens, &options, &plain), "compile for the reference");
  const fmoe_array others[] = {matrix(x, x_shape), matrix(z, y_shape)};
  good(fmoe_executable_run(plain, others, 2), "run the reference");
  float most = 0, off = 0;
  for (int i = 0; i < tokens * outputs; ++i) {
    most = fmaxf(most, fabsf(z[i]));
    off = fmaxf(off, fabsf(z[i] - y[i]));
  }
  printf("off the reference by %g of its largest\n", (double)(off / most));
  expect(most > 0 && off <= 1e-5f * most, "the numbers of the reference");
  fmoe_executable_free(plain);
  fmoe_executable_free(forward);
  fmoe_expression_free(out);
  fmoe_expression_free(in);
  fmoe_layer_free(layer);
}

/* A small group of Monet's layers, of which the first one has the router: s halves of m units, p heads
 * that keep k halves. The arrays are those of its file. */
enum { rows = 5, d = 6, s = 4, m = 2, p = 2, k = 2, layers_of_group = 4 };
static float keys[2][p * s * d];
static struct {
  float u[s * m * d], v[d * s * m], b[s * d];
} group[layers_of_group];

static float next_number(void) { /* of -1 to 1 */
  static unsigned state = 1;
  state = state * 1103515245u + 12345u;
  return (float)(state >> 16 & 0x7fff) / 16384 - 1;
}
static void fill(float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = next_number();
}

/* Writes the model as a safetensors file. */
static int write_group(const char* path) {
  char header[4096];
  size_t length = (size_t)sprintf(header, "{\"__metadata__\":{\"K\":\"%d\",\"heads\":\"%d\",\"activation\":\"relu2\"}", k, p), at = 0;
  for (int i = 0; i < 2; ++i, at += sizeof keys[0])
    length += (size_t)sprintf(header + length,
                              ",\"model.layers.0.router.w%d.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}",
                              i + 1, p * s, d, at, at + sizeof keys[0]);
  for (int l = 0; l < layers_of_group; ++l) {
    const struct {
      const char* name;
      int rows, columns;
    } arrays[] = {{"moe.u.weight", s * m, d}, {"moe.v.weight", d, s * m}, {"moe.b", s, d}};
    for (int i = 0; i < 3; ++i) {
      const size_t bytes = sizeof(float) * (size_t)(arrays[i].rows * arrays[i].columns);
      length += (size_t)sprintf(header + length,
                                ",\"model.layers.%d.%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}", l,
                                arrays[i].name, arrays[i].rows, arrays[i].columns, at, at + bytes);
      at += bytes;
    }
  }
  header[length++] = '}';
  FILE* file = fopen(path, "wb");
  if (file == NULL) return 0;
  unsigned char size[8];
  for (int i = 0; i < 8; ++i) size[i] = (unsigned char)((unsigned long long)length >> 8 * i);
  const int written = fwrite(size, 8, 1, file) == 1 && fwrite(header, length, 1, file) == 1 &&
                      fwrite(keys, sizeof keys, 1, file) == 1 && fwrite(group, sizeof group, 1, file) == 1;
  return fclose(file) == 0 && written;
}

/* The softmax of the k largest scores of a head, and 0 for the other halves. */
static void route(const float* x, const float* head_keys, double* g) {
  double score[s], sum = 0;
  for (int i = 0; i < s; ++i) {
    score[i] = 0;
    for (int c = 0; c < d; ++c) score[i] += (double)x[c] * head_keys[i * d + c];
  }
  for (int i = 0; i < s; ++i) {
    int before = 0;
    for (int j = 0; j < s; ++j) before += score[j] > score[i] || (score[j] == score[i] && j < i);
    g[i] = before < k ? exp(score[i]) : 0;
    sum += g[i];
  }
  for (int i = 0; i < s; ++i) g[i] /= sum;
}

/* The output of a token, whose routing is that of another x. */
static void experts_of(int layer, const float* x, const float* routed_x, double* y) {
  double g1[p][s], g2[p][s];
  for (int h = 0; h < p; ++h) {
    route(routed_x, keys[0] + h * s * d, g1[h]);
    route(routed_x, keys[1] + h * s * d, g2[h]);
  }
  for (int o = 0; o < d; ++o) y[o] = 0;
  for (int i = 0; i < s; ++i)
    for (int j = 0; j < s; ++j) {
      double weight = 0;
      for (int h = 0; h < p; ++h) weight += g1[h][i] * g2[h][j];
      for (int o = 0; o < d; ++o) y[o] += weight * group[layer].b[j * d + o];
      for (int q = 0; q < m; ++q) {
        double unit = 0;
        for (int c = 0; c < d; ++c) unit += (double)x[c] * group[layer].u[(i * m + q) * d + c];
        unit = unit > 0 ? unit * unit : 0;
        for (int o = 0; o < d; ++o) y[o] += weight * unit * group[layer].v[o * s * m + j * m + q];
      }
    }
}

/* Each layer behind the first one takes the routing of the first one. */
static void run_group(const char* path) {
  for (int i = 0; i < 2; ++i) fill(keys[i], p * s * d);
  for (int l = 0; l < layers_of_group; ++l) {
    fill(group[l].u, s * m * d);
    fill(group[l].v, d * s * m);
    fill(group[l].b, s * d);
  }
  expect(write_group(path), "a file of Monet's layers");
  static float x[layers_of_group][rows * d], y[rows * d];
  for (int l = 0; l < layers_of_group; ++l) fill(x[l], rows * d);
  const size_t shape[] = {rows, d};

  fmoe_layer* first;
  good(fmoe_layer_load(path, "model.layers.0.", 0, &first), "load the first layer");
  expect(!fmoe_layer_needs_routing(first), "the first layer has a router");
  fmoe_expression *in, *first_in, *g1 = NULL, *g2 = NULL;
  good(fmoe_input(0, 2, &in), "an input");
  good(fmoe_input(1, 2, &first_in), "the input of the first layer");
  good(fmoe_layer_routing(first, first_in, &g1, &g2), "its routing");
  for (int l = 0; l < layers_of_group; ++l) {
    char prefix[32];
    sprintf(prefix, "model.layers.%d.", l);
    fmoe_layer* layer;
    good(fmoe_layer_load(path, prefix, 0, &layer), "load a layer of Monet");
    fmoe_expression *none = NULL, *out;
    fmoe_executable *refused = NULL, *forward;
    if (l > 0) {
      expect(fmoe_layer_needs_routing(layer), "another layer has no router");
      expect(fmoe_layer_output(layer, in, &none) == FMOE_VALUE_ERROR && none == NULL &&
                 strstr(fmoe_last_error(), "the layer has no router") != NULL,
             "a layer without its routing");
      expect(fmoe_layer_compile(layer, rows, NULL, &refused) == FMOE_VALUE_ERROR && refused == NULL, "compile it so");
      expect(fmoe_layer_routing(layer, in, &none, &none) == FMOE_VALUE_ERROR && none == NULL, "ask it for a routing");
    }
    good(fmoe_layer_routed_output(layer, in, g1, g2, &out), "the output with a routing");
    const fmoe_expression* results[] = {out};
    good(fmoe_compile(results, 1, rows, NULL, &forward), "compile it");
    const fmoe_array arrays[] = {matrix(x[l], shape), matrix(x[0], shape), matrix(y, shape)};
    good(fmoe_executable_run(forward, arrays, 3), "run it");
    double most = 0, off = 0;
    for (int t = 0; t < rows; ++t) {
      double wanted[d];
      experts_of(l, x[l] + t * d, x[0] + t * d, wanted);
      for (int o = 0; o < d; ++o) {
        most = fmax(most, fabs(wanted[o]));
        off = fmax(off, fabs(wanted[o] - y[t * d + o]));
      }
    }
    expect(most > 0 && off <= 1e-5 * most, "the numbers of the group");
    fmoe_executable_free(forward);
    fmoe_expression_free(out);
    fmoe_layer_free(layer);
  }
  fmoe_expression_free(g2);
  fmoe_expression_free(g1);
  fmoe_expression_free(first_in);
  fmoe_expression_free(in);
  fmoe_layer_free(first);
  remove(path);
}

int main(int count, char** arguments) {
  expect(fmoe_last_error()[0] == '\0', "no error at first");
  run_expressions();
  run_operations();
  change_layer();
  load_a_mixture();
  load_with_settings();
  run_layer();
  run_group(count > 1 ? arguments[1] : "c_group.safetensors");
  printf("fmoe %s, %d failures\n", fmoe_version(), failures);
  return failures != 0;
}
