/* A network with timesteps that predicts noise, sampled with guidance by the conventions of another
 * program. A closed form stands in for a real network: the data are normal with mean 1 under the
 * condition and 0 without. Build: cc guided.c $(pkg-config --cflags --libs ebb_samplers) -lm */
#include <ebb/samplers.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { height = 8, width = 8, channels = 4, count = height * width * channels };

struct job {
  const ebb_sampler* sampler;
  ebb_guidance* guidance;
  int evaluations;
};

/* The noise expected in `input`. A real network learns `signal` from the timestep. */
static void network(const float* input, double timestep, double signal, int condition, float* out) {
  const double noise = sqrt(1 - signal * signal), spread = 0.5;
  const double variance = signal * signal * spread * spread + noise * noise;
  (void)timestep;
  for (int i = 0; i < count; ++i)
    out[i] = (float)(noise * (input[i] - signal * condition) / variance);
}

static int denoise(void* user, const float* x, double sigma, float* denoised, float* uncond) {
  static float input[count], output[count], branch[2][count];
  struct job* job = user;
  const char* names[2];
  const float* predictions[2] = {branch[0], branch[1]};
  double scale = 0, timestep = 0;
  size_t needed = 0;
  ++job->evaluations;
  if (ebb_network_input(job->sampler, sigma, &scale, &timestep) != EBB_OK) return 1;
  if (ebb_guidance_branches(job->guidance, sigma, names, 2, &needed) != EBB_OK || needed > 2)
    return 1;
  for (int i = 0; i < count; ++i) input[i] = (float)(scale * x[i]);
  for (size_t k = 0; k < needed; ++k) {
    network(input, timestep, scale, strcmp(names[k], "cond") == 0, output);
    ebb_network_denoised(job->sampler, sigma, x, output, count, branch[k]);
    if (uncond && strcmp(names[k], "uncond") == 0) memcpy(uncond, branch[k], sizeof branch[k]);
  }
  return ebb_guidance_apply(job->guidance, sigma, x, predictions, denoised) != EBB_OK;
}

static int progress(void* user, int64_t step, int64_t steps, double sigma, const float* x) {
  (void)user;
  (void)x;
  if (step % 5 == 0) printf("step %d of %d, sigma %.3f\n", (int)step, (int)steps, sigma);
  return 0; /* anything else stops the run */
}

static void check(ebb_status status) {
  if (status == EBB_OK) return;
  fprintf(stderr, "guided: %s\n", ebb_last_error());
  exit(1);
}

int main(void) {
  static float x[count];
  struct job job = {NULL, NULL, 0};
  double mean = 0;
  ebb_sampler* s = NULL;
  check(ebb_sampler_create("dpmpp_2m", &s));
  check(ebb_sampler_configure(s, "dialect", "comfy"));
  check(ebb_sampler_configure(s, "seed", "1"));
  check(ebb_sampler_set_shape(s, height, width, channels));
  check(ebb_sampler_set_levels(s, "levels", "scaled_linear"));
  check(ebb_sampler_set_levels(s, "prediction", "eps"));
  check(ebb_sampler_set_schedule(s, "karras", 20));
  check(ebb_sampler_set_progress(s, progress, NULL));
  job.sampler = s;
  check(ebb_guidance_create("interval:sigma_hi=10;cfg:scale=2", s, 1, count, &job.guidance));
  check(ebb_sampler_start(s, NULL, 1, count, x));
  check(ebb_sampler_run(s, x, 1, count, denoise, &job));
  for (int i = 0; i < count; ++i) mean += x[i] / count;
  printf("%d evaluations, mean %.2f\n", job.evaluations, mean);
  ebb_guidance_destroy(job.guidance);
  ebb_sampler_destroy(s);
  return 0;
}
