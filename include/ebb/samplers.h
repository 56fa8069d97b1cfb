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
 * with the names and numbers. Settings may come in any order. Each is validated alone when it is
 * set, and one that fails leaves the sampler as it was; whether they are consistent is checked when
 * the sampler is used (its counts, levels, start, a run, its network). A sampler may be used by one
 * thread at a time; different samplers by different threads. All strings are UTF-8. Buffers hold
 * `images * elements` floats, image after image.
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

/* The error of this thread's last call; "" if it succeeded. Valid until its next call. */
EBB_API const char* ebb_last_error(void);

/* ---- a run ----------------------------------------------------------------------------- */

typedef struct ebb_sampler ebb_sampler;

/* `name`: one of ebb_sampler_name, or another program's name for it ("DPM++ 2M SDE"). EBB_ERROR for
 * others; the message suggests the nearest. */
EBB_API ebb_status ebb_sampler_create(const char* name, ebb_sampler** out);
/* NULL is ignored. In a callback of its own run it fails, and ebb_last_error() says so. */
EBB_API void ebb_sampler_destroy(ebb_sampler* sampler);

/* An option of this sampler, such as ("eta", "0.5"): ebb_sampler_describe lists them. An unknown
 * option is an error here; a value out of range is one at the next count or run, since its range
 * may depend on other options. */
EBB_API ebb_status ebb_sampler_set(ebb_sampler* sampler, const char* option, const char* value);

/* The parametrisation, and the program whose conventions are followed:
 *   "space"        ve (default): x = data + sigma noise; flow: x = (1 - sigma) data + sigma noise
 *   "dialect"      ebb (default), kdiff, comfy, a1111, diffusers or sdcpp: a program's defaults and
 *                  conventions, its random numbers among them
 *   "seed"         of the noise, an integer from 0 to 2^64 - 1
 *   "first_image"  index of the batch's first image among those of the seed (default 0)
 *   "noise"        the source of random numbers, one of ebb_noise_name; "" (default): the dialect's
 *                  for this sampler. Sources named after a dialect (ebb, comfy, a1111) draw as that
 *                  program does; they change nothing but the noise
 *   "layout"       hwc (default) or chw: memory order of an image, see ebb_sampler_set_shape */
EBB_API ebb_status ebb_sampler_configure(ebb_sampler* sampler, const char* key, const char* value);

/* The number of network evaluations and noise draws of a run (adaptive samplers: a lower bound).
 * Either may be NULL. */
EBB_API ebb_status ebb_sampler_count(const ebb_sampler* sampler, int64_t* evaluations,
                                     int64_t* draws);

/* D(x, sigma): writes the expected data given x, which has `images * elements` values, and to
 * `uncond` the unconditional prediction unless it is NULL (samplers of the CFG++ family need it;
 * without a condition it equals `denoised`). A value that is not written is an error. Returns 0 to
 * go on, anything else to stop. Callbacks may query their sampler (its network, levels, counts),
 * but not change, run or destroy it. */
typedef int (*ebb_denoise)(void* user, const float* x, double sigma, float* denoised,
                           float* uncond);

/* From x at the first level (see ebb_sampler_start) to x at the last, in place; x is unchanged
 * unless the status is EBB_OK. A run of no steps (one level; strength 0 in dialects that then make
 * none; "start_at_step" at the end of the list) evaluates nothing and leaves x as it is; an empty
 * list of levels is an error. */
EBB_API ebb_status ebb_sampler_run(ebb_sampler* sampler, float* x, size_t images, size_t elements,
                                   ebb_denoise denoise, void* user);

/* Writes the initial state by the dialect's rules: noise of the source and seed at the first level;
 * with `latent` (or NULL), that latent noised to the first level. x may be `latent`. */
EBB_API ebb_status ebb_sampler_start(const ebb_sampler* sampler, const float* latent, size_t images,
                                     size_t elements, float* x);

/* Called after every step; a value other than 0 stops the run with EBB_CANCELLED. `x` is the state
 * at `sigma`, valid during the call. NULL: no calls. */
typedef int (*ebb_progress)(void* user, int64_t step, int64_t steps, double sigma, const float* x);
EBB_API ebb_status ebb_sampler_set_progress(ebb_sampler* sampler, ebb_progress progress,
                                            void* user);

/* ---- starts from an image -------------------------------------------------------------- */

/* Converts the state that a run left at `sigma` (by "end_at_step") to the latent that another run
 * starts from without adding noise, in place: on flow models x / (1 - sigma), else x. At level 1
 * everything is noise, and x stays. */
EBB_API ebb_status ebb_sampler_finish(const ebb_sampler* sampler, double sigma, size_t count,
                                      float* x);

/* Inpainting with a network that was not trained for it: known regions are restored at every
 * evaluation and at the end, as "input", "output" and "end" say. All 0: the dialect's default for
 * this sampler. */
typedef struct ebb_inpaint {
  size_t count;       /* of values in each of these, as many as the run's x has */
  const float* data;  /* the known image */
  const float* mask;  /* 1: generated, 0: known; between: blended */
  const float* noise; /* standard normal, the same in every evaluation; NULL: that of the start */
  int input;          /* not 0: known regions of the input are at the evaluation's level */
  int output;         /* not 0: known regions of its prediction are restored */
  int end;            /* not 0: known regions of the final state are restored */
  int differential; /* not 0: where the mask is m, the image is generated from the time on at which
                       a fraction m of the run is left (differential diffusion) */
} ebb_inpaint;

/* Copies; NULL: no inpainting. */
EBB_API ebb_status ebb_sampler_set_inpaint(ebb_sampler* sampler, const ebb_inpaint* inpaint);

/* The first step that a second network, the refiner, takes over; the number of steps if none. Use
 * it as "end_at_step" of the first sampler and "start_at_step" of the second. `rule`:
 *   "steps"     the first step after the fraction `share` of the steps
 *   "level"     the first whose level has lost that fraction of the noise, in levels of the network
 *               (A1111)
 *   "timestep"  the first whose timestep lies below 1 - share of all (diffusers' denoising_end) */
EBB_API ebb_status ebb_sampler_refiner_step(const ebb_sampler* sampler, const char* rule,
                                            double share, int64_t* step);

/* ---- noise levels ---------------------------------------------------------------------- */

/* Noise levels, decreasing, at least one; the last may be 0. Repeated levels count once. On flow
 * models the first is at most 1, which is checked when the sampler is used. */
EBB_API ebb_status ebb_sampler_set_sigmas(ebb_sampler* sampler, const double* sigmas, size_t count);

/* Or the levels of a schedule, one of ebb_schedule_name, in `steps` steps, for the network's levels
 * (ebb_sampler_set_levels) and by the rules of the dialect. "auto": the schedule in the sampler's
 * name ("DPM++ 2M Karras"), else the dialect's default, else flow, normal (networks with timesteps)
 * or karras. */
EBB_API ebb_status ebb_sampler_set_schedule(ebb_sampler* sampler, const char* name, int64_t steps);

/* An option of the schedule, such as ("rho", "7"), or of every list: "sigma_min", "sigma_max",
 * "strength" (how much noise is added to a latent), "exact_steps", and the range of steps that
 * runs, "start_at_step", "end_at_step" and "finish"; ebb_schedule_describe explains them. A range
 * that starts after its end or after the list is an error. Set them after
 * ebb_sampler_set_schedule, which resets them. */
EBB_API ebb_status ebb_sampler_set_schedule_option(ebb_sampler* sampler, const char* option,
                                                   const char* value);

/* The levels in effect: writes the first `room` of them, and their number to `count`. */
EBB_API ebb_status ebb_sampler_sigmas(const ebb_sampler* sampler, double* sigmas, size_t room,
                                      size_t* count);

/* ---- the network ----------------------------------------------------------------------- */

/* How the network was trained, such as ("levels", "flow"), ("shift", "3"), ("prediction", "v"):
 * ebb_levels_describe lists the options. The default is Stable Diffusion's: 1000 levels of
 * scaled_linear betas, prediction eps; in space flow: flow. Flow levels belong to space flow, all
 * others to space ve. */
EBB_API ebb_status ebb_sampler_set_levels(ebb_sampler* sampler, const char* option,
                                          const char* value);

/* The network's inputs at `sigma`: scale * x (c_in) and `timestep` (c_noise: a timestep, or what
 * networks with other levels take instead). Either may be NULL. EBB_ERROR if one is not finite. */
EBB_API ebb_status ebb_network_input(const ebb_sampler* sampler, double sigma, double* scale,
                                     double* timestep);

/* D(x, sigma) of `count` values from the network's output. `denoised` may be x or `output`. */
EBB_API ebb_status ebb_network_denoised(const ebb_sampler* sampler, double sigma, const float* x,
                                        const float* output, size_t count, float* denoised);

/* ---- noise ----------------------------------------------------------------------------- */

/* The shape of an image, for noise sources that depend on it: other programs draw in the order
 * [C,H,W]. With the layout chw the buffers have that order too, else [H,W,C]. Without a shape an
 * image is a vector, drawn in memory order. */
EBB_API ebb_status ebb_sampler_set_shape(ebb_sampler* sampler, size_t height, size_t width,
                                         size_t channels);

/* One seed per image instead of one for all; count 0: one for all. */
EBB_API ebb_status ebb_sampler_set_seeds(ebb_sampler* sampler, const uint64_t* seeds, size_t count);

/* An option of the noise source, such as ("per_image", "true"): ebb_noise_describe lists them. Set
 * them after the source's name, which resets them. */
EBB_API ebb_status ebb_sampler_set_noise_option(ebb_sampler* sampler, const char* option,
                                                const char* value);

/* The caller's own standard normal noise in place of a named source: for the `index`-th draw of a
 * run (0, 1, ...), in a step between two levels; `index` -1 is the start. Returns 0, or anything
 * else to stop. A value that is not written is an error. NULL: the named source again. */
typedef int (*ebb_noise)(void* user, int64_t index, double from, double to, float* out,
                         size_t count);
EBB_API ebb_status ebb_sampler_set_noise(ebb_sampler* sampler, ebb_noise noise, void* user);

/* ---- guidance -------------------------------------------------------------------------- */

/* Guidance combines the predictions of several branches into one by a sequence of rules, for use in
 * a denoiser. It may have state (momentum): create one per run. */
typedef struct ebb_guidance ebb_guidance;

/* `rules`: names and options, "cfg:scale=7.5;cfg_rescale:guidance_rescale=0.7"; "" is the
 * conditional prediction. A rule without effect in its position is an error. Levels, space, shape,
 * layout and prediction are copied from the sampler. */
EBB_API ebb_status ebb_guidance_create(const char* rules, const ebb_sampler* sampler, size_t images,
                                       size_t elements, ebb_guidance** out);
EBB_API void ebb_guidance_destroy(ebb_guidance* guidance); /* NULL is ignored */

/* The branches that the rules need at `sigma`, "cond" and mostly "uncond": writes the first `room`
 * names, which stay valid, and their number to `count`. */
EBB_API ebb_status ebb_guidance_branches(const ebb_guidance* guidance, double sigma,
                                         const char** names, size_t room, size_t* count);

/* Writes the guided D. `predictions`: one D(x, sigma) per name of ebb_guidance_branches, in that
 * order; `denoised` may be one of them. */
EBB_API ebb_status ebb_guidance_apply(ebb_guidance* guidance, double sigma, const float* x,
                                      const float* const* predictions, float* denoised);

/* Self-attention guidance: computes the branch "sag_input" from `uncond` by blurring every pixel
 * whose attention exceeds the threshold. `attention`, images * height * width: an unconditional
 * self-attention map, summed over queries and averaged over heads. Needs ebb_sampler_set_shape
 * before ebb_guidance_create. `how`: NULL for the values below. */
typedef struct ebb_sag {
  int64_t size;     /* of the kernel, in pixels, odd: 9 */
  double sigma;     /* its standard deviation, in pixels: 2 */
  double threshold; /* 1 */
} ebb_sag;
EBB_API ebb_status ebb_guidance_sag_blur(const ebb_guidance* guidance, const ebb_sag* how,
                                         const float* uncond, const float* attention, float* out);

/* ---- listings -------------------------------------------------------------------------- */

/* Names in order; NULL past the last. */
EBB_API const char* ebb_sampler_name(size_t index);
EBB_API const char* ebb_schedule_name(size_t index);
EBB_API const char* ebb_noise_name(size_t index);
EBB_API const char* ebb_dialect_name(size_t index);
EBB_API const char* ebb_guidance_name(size_t index);

/* Lines "option=default  description"; NULL and an error for an unknown name. Valid until this
 * thread's next call of one of these. */
EBB_API const char* ebb_sampler_describe(const char* name);
EBB_API const char* ebb_schedule_describe(const char* name);
EBB_API const char* ebb_noise_describe(const char* name);
EBB_API const char* ebb_guidance_describe(const char* name);
EBB_API const char* ebb_levels_describe(void);

#ifdef __cplusplus
}
#endif

#endif
