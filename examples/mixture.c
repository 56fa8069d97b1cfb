/* Samples a mixture of two normal distributions, whose optimal denoiser has a closed form, with
 * ebb's samplers from C. Build: cc mixture.c $(pkg-config --cflags --libs ebb_samplers) -lm */
#include <ebb/samplers.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { count = 20000 };

static int denoise(void* user, const float* x, double sigma, float* denoised, float* uncond) {
  const double weight[2] = {0.35, 0.65}, mean[2] = {-1.2, 0.8}, spread[2] = {0.25, 0.4};
  ++*(int*)user;
  for (int i = 0; i < count; ++i) {
    double share[2], mode[2];
    for (int k = 0; k < 2; ++k) {
      const double v = spread[k] * spread[k] + sigma * sigma, d = x[i] - mean[k];
      share[k] = log(weight[k]) - 0.5 * log(v) - 0.5 * d * d / v;
      mode[k] = (spread[k] * spread[k] * x[i] + sigma * sigma * mean[k]) / v;
    }
    const double p = 1 / (1 + exp(share[1] - share[0]));
    denoised[i] = (float)(p * mode[0] + (1 - p) * mode[1]);
    if (uncond) uncond[i] = denoised[i]; /* there is no condition to leave out */
  }
  return 0;
}

static void check(ebb_status status) {
  if (status == EBB_OK) return;
  fprintf(stderr, "mixture: %s\n", ebb_last_error());
  exit(1);
}

int main(int argc, char** argv) {
  static float x[count];
  double sigmas[21];
  ebb_sampler* s = NULL;
  int evaluations = 0, low = 0;
  for (int i = 0; i < 20; ++i) sigmas[i] = 15 * pow(0.002 / 15, i / 19.0);
  sigmas[20] = 0;
  check(ebb_sampler_create(argc > 1 ? argv[1] : "dpmpp_2m", &s));
  check(ebb_sampler_configure(s, "seed", "1"));
  check(ebb_sampler_set_sigmas(s, sigmas, 21));
  check(ebb_sampler_start(s, NULL, 1, count, x));
  check(ebb_sampler_run(s, x, 1, count, denoise, &evaluations));
  ebb_sampler_destroy(s);
  for (int i = 0; i < count; ++i) low += x[i] < -0.3f;
  printf("%d evaluations, %.1f %% in the left mode (35.2 %% of the data are)\n", evaluations,
         100.0 * low / count);
  return 0;
}
