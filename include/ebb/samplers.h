/* ebb's samplers, schedules, noise and guidance for C and everything that can call C.
 *
 * A run: make a sampler, give it levels and options, call it with a denoiser of yours.
 *
 *   ebb_sampler* s = NULL;
 *   if (ebb_sampler_create("dpmpp_2m", &s) != EBB_OK) puts(ebb_last_error());
 *   ebb_sampler_set_schedule(s, "karras", 20);
 *   ebb_sampler_start(s, NULL, 1, n, x);
 *   ebb_sampler_run(s, x, 1, n, denoise, my_network);
 *   ebb_sampler_destroy(s);
 *
 * Nothing throws or aborts: functions return a status, and ebb_last_error() says what was wrong,
 * with the names and numbers. Settings may come in any order: each is checked alone when it is
 * made, and one that fails leaves the sampler as it was; how they go together is checked when
 * something is asked of the sampler (its counts, levels, start, a run, its network). A sampler may
 * be used by one thread at a time; different samplers by different threads. All strings are UTF-8.
 * Buffers hold `images * elements` floats, image after image.
 */
#ifndef EBB_SAMPLERS_H
#define EBB_SAMPLERS_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define EBB_API
#else
#define EBB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ebb_status {
  EBB_OK = 0,
  EBB_ERROR = 1,     /* ebb_last_error() says what */
  EBB_CANCELLED = 2, /* a callback asked to stop */
} ebb_status;

/* Why the last call of this thread failed; "" if none did. Valid until its next call. */
EBB_API const char* ebb_last_error(void);

/* ---- a run ----------------------------------------------------------------------------- */

typedef struct ebb_sampler ebb_sampler;

/* `name`: one that ebb_sampler_name lists, or what other programs call it ("DPM++ 2M SDE").
 * EBB_ERROR suggests the nearest. */
EBB_API ebb_status ebb_sampler_create(const char* name, ebb_sampler** out);
/* NULL: nothing. In a callback of its own run it stays, and ebb_last_error() says so. */
EBB_API void ebb_sampler_destroy(ebb_sampler* sampler);

/* An option of this sampler, such as ("eta", "0.5"): ebb_sampler_describe lists them. Options that
 * it does not have are errors, here; numbers out of range too, at the next count or run, as their
 * range may depend on other options. */
EBB_API ebb_status ebb_sampler_set(ebb_sampler* sampler, const char* option, const char* value);

/* What the numbers mean and whose habits are followed:
 *   "space"        ve: x = data + sigma noise (the start); flow: x = (1 - sigma) data + sigma noise
 *   "dialect"      ebb (the start), kdiff, comfy, a1111, diffusers or sdcpp: a program's habits, its
 *                  numbers among them
 *   "seed"         of the noise, a whole number from 0 to 2^64 - 1
 *   "first_image"  number of the batch's first image among those of the seed (the start: 0)
 *   "noise"        where numbers come from, one of ebb_noise_name; "" (the start): the dialect's
 *                  for this sampler. Sources that have a dialect's name (ebb, comfy, a1111) draw as
 *                  that program does; they change nothing but the numbers
 *   "layout"       hwc (the start) or chw: the order of an image's numbers, see
 *                  ebb_sampler_set_shape */
EBB_API ebb_status ebb_sampler_configure(ebb_sampler* sampler, const char* key, const char* value);

/* How many evaluations and draws a run will ask for (of adaptive samplers: at least). Either may be
 * NULL. */
EBB_API ebb_status ebb_sampler_count(const ebb_sampler* sampler, int64_t* evaluations,
                                     int64_t* draws);

/* D(x, sigma): writes the data expected behind x, which has `images * elements` numbers, and to
 * `uncond` the same without the condition unless it is NULL (samplers of the CFG++ family ask for
 * it; without a condition it is the same as `denoised`). Numbers that are not written are an error.
 * Returns 0 to go on, anything else to stop. Callbacks may ask their sampler (its network, levels,
 * counts), but not set, run or destroy it. */
typedef int (*ebb_denoise)(void* user, const float* x, double sigma, float* denoised,
                           float* uncond);

/* From x at the first level (see ebb_sampler_start) to x at the last, in place; x is unchanged
 * unless the status is EBB_OK. A way of no steps (one level; strength 0 where the dialect then makes
 * none; "start_at_step" at the end of the list) asks for nothing and leaves x as it is; no levels
 * at all are an error. */
EBB_API ebb_status ebb_sampler_run(ebb_sampler* sampler, float* x, size_t images, size_t elements,
                                   ebb_denoise denoise, void* user);

/* Writes the start of a run by the dialect's rules: noise of the source and seed at the first
 * level; with `latent`, that noised to the first level (NULL: none). x may be `latent`. */
EBB_API ebb_status ebb_sampler_start(const ebb_sampler* sampler, const float* latent, size_t images,
                                     size_t elements, float* x);

/* Called after every step; a value other than 0 stops the run with EBB_CANCELLED. `x` is the state
 * at `sigma`, valid during the call. NULL: no calls. */
typedef int (*ebb_progress)(void* user, int64_t step, int64_t steps, double sigma, const float* x);
EBB_API ebb_status ebb_sampler_set_progress(ebb_sampler* sampler, ebb_progress progress,
                                            void* user);

/* ---- starts from an image -------------------------------------------------------------- */

/* Makes what a run left at `sigma` (by "end_at_step") what another one starts from without noise,
 * in place: on flow models x / (1 - sigma), else x. At level 1 all is noise, and x stays. */
EBB_API ebb_status ebb_sampler_finish(const ebb_sampler* sampler, double sigma, size_t count,
                                      float* x);

/* Inpainting with a network that was not made for it: known parts are put back at every
 * evaluation, and at the end; where, says "input", "output" and "end". All 0: where the dialect has
 * them for this sampler. */
typedef struct ebb_inpaint {
  size_t count;       /* of values in each of these, as many as the run's x has */
  const float* data;  /* what is known */
  const float* mask;  /* 1: made anew, 0: known; between: mixed */
  const float* noise; /* standard normal, the same in every evaluation; NULL: that of the start */
  int input;          /* not 0: the network sees known parts at the noise level of the evaluation */
  int output;         /* not 0: known parts of its answer are as they are */
  int end;            /* not 0: so are known parts of what comes out of the run */
  int differential; /* not 0: where the mask is m, the image is made anew from the time on of which
                       a share m of the run is left (differential diffusion) */
} ebb_inpaint;

/* Copies; NULL: no inpainting. */
EBB_API ebb_status ebb_sampler_set_inpaint(ebb_sampler* sampler, const ebb_inpaint* inpaint);

/* The first step of the levels that a second network, a refiner, makes; the number of steps if
 * none. Give it to "end_at_step" of the one sampler and "start_at_step" of the other. `rule`:
 *   "steps"     the first before which a share `share` of the steps is made
 *   "level"     the first whose level has lost that share of the noise, in levels of the network
 *               (A1111)
 *   "timestep"  the first whose timestep lies below 1 - share of all (diffusers' denoising_end) */
EBB_API ebb_status ebb_sampler_refiner_step(const ebb_sampler* sampler, const char* rule,
                                            double share, int64_t* step);

/* ---- noise levels ---------------------------------------------------------------------- */

/* Noise levels, falling, at least one; the last may be 0. One that is repeated counts once. On flow
 * models the first is at most 1, which is checked when something is asked. */
EBB_API ebb_status ebb_sampler_set_sigmas(ebb_sampler* sampler, const double* sigmas, size_t count);

/* Or those of a schedule, one of ebb_schedule_name, in `steps` steps, for the levels of the network
 * (ebb_sampler_set_levels) and by the rules of the dialect. "auto": the one that the sampler's name
 * ("DPM++ 2M Karras") or else the dialect asks for; or flow, normal (networks with timesteps) or
 * karras. */
EBB_API ebb_status ebb_sampler_set_schedule(ebb_sampler* sampler, const char* name, int64_t steps);

/* An option of the schedule, such as ("rho", "7"), or of every list: "sigma_min", "sigma_max",
 * "strength" (a share of the noise comes back, for starts from a latent), "exact_steps", and the
 * stretch that runs, "start_at_step", "end_at_step" and "finish"; ebb_schedule_describe says what
 * they do. A stretch that starts behind its end or behind the list is an error. They come after ebb_sampler_set_schedule, which forgets those of before. */
EBB_API ebb_status ebb_sampler_set_schedule_option(ebb_sampler* sampler, const char* option,
                                                   const char* value);

/* The levels as they are: writes the first `room` of them, and how many there are to `count`. */
EBB_API ebb_status ebb_sampler_sigmas(const ebb_sampler* sampler, double* sigmas, size_t room,
                                      size_t* count);

/* ---- the network ----------------------------------------------------------------------- */

/* How the network was trained, such as ("levels", "flow"), ("shift", "3"), ("prediction", "v"):
 * ebb_levels_describe lists the options. At the start it is Stable Diffusion's: 1000 levels of
 * scaled_linear betas, prediction eps; on space flow: flow. Flow levels are of space flow, all
 * others of space ve. */
EBB_API ebb_status ebb_sampler_set_levels(ebb_sampler* sampler, const char* option,
                                          const char* value);

/* At `sigma` the network gets scale * x and is told `told` (a timestep, or what its levels have
 * instead). Either may be NULL. EBB_ERROR where that is not finite. */
EBB_API ebb_status ebb_network_input(const ebb_sampler* sampler, double sigma, double* scale,
                                     double* timestep);

/* D(x, sigma) of `count` numbers from what the network answered. `denoised` may be x or `output`.
 */
EBB_API ebb_status ebb_network_denoised(const ebb_sampler* sampler, double sigma, const float* x,
                                        const float* output, size_t count, float* denoised);

/* ---- noise ----------------------------------------------------------------------------- */

/* The shape of an image, for sources that depend on it: other programs draw in the order
 * [C,H,W]. With the layout chw an image's numbers stand in that order too, else as [H,W,C].
 * Without a shape an image is a row of numbers, drawn as they stand. */
EBB_API ebb_status ebb_sampler_set_shape(ebb_sampler* sampler, size_t height, size_t width,
                                         size_t channels);

/* A seed for each image, instead of one for all; count 0: none. */
EBB_API ebb_status ebb_sampler_set_seeds(ebb_sampler* sampler, const uint64_t* seeds, size_t count);

/* An option of the source, such as ("per_image", "true"): ebb_noise_describe lists them. Options of
 * a named source come after its name, which forgets those of before. */
EBB_API ebb_status ebb_sampler_set_noise_option(ebb_sampler* sampler, const char* option,
                                                const char* value);

/* Standard normal numbers of yours instead of a named source: for the `index`-th draw of a run
 * (0, 1, ...), on the way between two levels; `index` -1 is the start. Returns 0, or anything else
 * to stop. Numbers that are not written are an error. NULL: the source again. */
typedef int (*ebb_noise)(void* user, int64_t index, double from, double to, float* out,
                         size_t count);
EBB_API ebb_status ebb_sampler_set_noise(ebb_sampler* sampler, ebb_noise noise, void* user);

/* ---- guidance -------------------------------------------------------------------------- */

/* How several predictions of one evaluation become one, by rules that follow each other, for use
 * in a denoiser. It may remember the evaluations before: one for each run. */
typedef struct ebb_guidance ebb_guidance;

/* `rules`: names and options, "cfg:scale=7.5;cfg_rescale:guidance_rescale=0.7"; "" is the
 * conditional prediction. Rules that would do nothing where they stand are an error. Levels, space, shape, layout and prediction are those that the sampler
 * has now. */
EBB_API ebb_status ebb_guidance_create(const char* rules, const ebb_sampler* sampler, size_t images,
                                       size_t elements, ebb_guidance** out);
EBB_API void ebb_guidance_destroy(ebb_guidance* guidance); /* NULL: nothing */

/* Which predictions the rules need at `sigma`, "cond" and mostly "uncond": writes the first `room`
 * names, which stay valid, and how many there are to `count`. */
EBB_API ebb_status ebb_guidance_branches(const ebb_guidance* guidance, double sigma, const char** names,
                                     size_t room, size_t* count);

/* Writes the guided D. `predictions`: a D(x, sigma) for each name of ebb_guidance_branches, in that
 * order; `denoised` may be one of them. */
EBB_API ebb_status ebb_guidance_apply(ebb_guidance* guidance, double sigma, const float* x,
                                      const float* const* predictions, float* denoised);

/* Self-attention guidance: makes the prediction "sag_input" of `uncond`, in which every pixel is
 * blurred that more attention than the threshold falls on. `attention`, images * height * width:
 * summed over the queries of a self-attention map without condition, the mean over its heads. Needs
 * ebb_sampler_set_shape before ebb_guidance_create. `how`: NULL for these. */
typedef struct ebb_sag {
  int64_t size;     /* of the kernel, in pixels, odd: 9 */
  double sigma;     /* its standard deviation, in pixels: 2 */
  double threshold; /* 1 */
} ebb_sag;
EBB_API ebb_status ebb_guidance_sag_blur(const ebb_guidance* guidance, const ebb_sag* how,
                                         const float* uncond, const float* attention, float* out);

/* ---- what there is --------------------------------------------------------------------- */

/* Names in order; NULL past the last. */
EBB_API const char* ebb_sampler_name(size_t index);
EBB_API const char* ebb_schedule_name(size_t index);
EBB_API const char* ebb_noise_name(size_t index);
EBB_API const char* ebb_dialect_name(size_t index);
EBB_API const char* ebb_guidance_name(size_t index);

/* Lines "option=default  what it does"; NULL and an error if the name is not known. Valid until
 * this thread's next call of one of these. */
EBB_API const char* ebb_sampler_describe(const char* name);
EBB_API const char* ebb_schedule_describe(const char* name);
EBB_API const char* ebb_noise_describe(const char* name);
EBB_API const char* ebb_guidance_describe(const char* name);
EBB_API const char* ebb_levels_describe(void);

#ifdef __cplusplus
}
#endif

#endif
