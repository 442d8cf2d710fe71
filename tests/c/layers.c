/* SPDX-License-Identifier: MIT */
/* Runs a released layer, and the same equation of expressions, by the C interface alone. */
#include <math.h>
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
  good(fmoe_einsum("ti,si->ts", operands, 2, &product), "an einsum");
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

int main(void) {
  expect(fmoe_last_error()[0] == '\0', "no error at first");
  run_expressions();
  run_layer();
  printf("fmoe %s, %d failures\n", fmoe_version(), failures);
  return failures != 0;
}
