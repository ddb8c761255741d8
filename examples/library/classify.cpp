// Reads images from standard input, 64 floats each, and writes ten probabilities for each to standard output.
#include <cstdio>
#include <cstdlib>

#include "digits.hpp"

int main(int count, char **arguments) try {
  if (count < 2) return 2;
  digits_model model;
  model.set_threads(count > 2 ? std::atoi(arguments[2]) : 1);
  tilewright::tensor<float> image({std::atoi(arguments[1]), 1, 8, 8});
  if (std::fread(image.data.data(), sizeof(float), image.size(), stdin) != image.size()) return 2;
  auto probability = model.run<float>(image);
  std::fwrite(probability.data.data(), sizeof(float), probability.size(), stdout);
  return 0;
} catch (const tilewright::error &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
