/* SPDX-License-Identifier: MIT */
/* Runs a released layer, the same equation of expressions, and a group of Monet's layers, by the C interface alone. */
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
  load_with_settings();
  run_layer();
  run_group(count > 1 ? arguments[1] : "c_group.safetensors");
  printf("fmoe %s, %d failures\n", fmoe_version(), failures);
  return failures != 0;
}
