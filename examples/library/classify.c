/* Reads images from standard input, 64 floats each, and writes ten probabilities for each to standard output. */
#include <stdio.h>
#include <stdlib.h>

#include "digits.h"

int main(int count, char **arguments) {
  digits_context *context;
  tilewright_array image = {0}, probability = {0};
  int64_t n = strtol(arguments[1], NULL, 10), threads = count > 2 ? strtol(arguments[2], NULL, 10) : 1;
  if (digits_interface() != TILEWRIGHT_TYPES || digits_open(&context)) return fprintf(stderr, "%s\n", digits_error(context)), 1;
  if (digits_set_threads(context, threads)) return fprintf(stderr, "%s\n", digits_error(context)), 1;
  image.rank = 4;
  image.dims[0] = n, image.dims[1] = 1, image.dims[2] = 8, image.dims[3] = 8;
  image.bytes = n * 64 * (int64_t)sizeof(float);
  image.data = malloc((size_t)image.bytes);
  if (fread(image.data, sizeof(float), (size_t)n * 64, stdin) != (size_t)n * 64) return 2;
  if (digits_sizes(context, &image, &probability)) return fprintf(stderr, "%s\n", digits_error(context)), 1;
  if (probability.rank != 2 || probability.dims[0] != n || probability.dims[1] != 10) return 3;
  probability.data = malloc((size_t)probability.bytes);
  if (digits_run(context, &image, &probability)) return fprintf(stderr, "%s\n", digits_error(context)), 1;
  fwrite(probability.data, sizeof(float), (size_t)n * 10, stdout);
  free(image.data);
  free(probability.data);
  digits_close(context);
  return 0;
}
