/* ebb's samplers, schedules and noise for C and everything that can call C.
 *
 * A run: make a sampler, give it levels and options, call it with a denoiser of yours.
 *
 *   ebb_sampler* s = NULL;
 *   if (ebb_sampler_create("dpmpp_2m", &s) != EBB_OK) puts(ebb_last_error());
 *   ebb_sampler_set_schedule(s, "karras", 20);
 *   ebb_sampler_run(s, x, 1, n, denoise, my_network);
 *   ebb_sampler_destroy(s);
 *
 * Nothing throws or aborts: functions return a status, and ebb_last_error() says what was wrong,
 * with the names and numbers. A sampler may be used by one thread at a time; different samplers by
 * different threads. All strings are UTF-8.
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

/* `name`: one that ebb_sampler_name lists, or an alias. EBB_ERROR suggests the nearest. */
EBB_API ebb_status ebb_sampler_create(const char* name, ebb_sampler** out);
EBB_API void ebb_sampler_destroy(ebb_sampler* sampler); /* NULL: nothing */

/* An option of this sampler, such as ("eta", "0.5"). Options that it does not have and values that
 * it cannot take are errors. */
EBB_API ebb_status ebb_sampler_set(ebb_sampler* sampler, const char* option, const char* value);

/* What the numbers mean and whose habits are followed:
 *   "space"    ve: x = data + sigma noise (the start); flow: x = (1 - sigma) data + sigma noise
 *   "dialect"  ebb, kdiff, comfy, a1111, diffusers or sdcpp
 *   "seed"     of the noise, a whole number
 *   "noise"    where numbers come from, one of ebb_noise_name */
EBB_API ebb_status ebb_sampler_configure(ebb_sampler* sampler, const char* key, const char* value);

/* Noise levels, falling; the last may be 0. One that is repeated counts once. */
EBB_API ebb_status ebb_sampler_set_sigmas(ebb_sampler* sampler, const double* sigmas,
                                          size_t count);

/* How many evaluations and draws a run will ask for (of adaptive samplers: at least). */
EBB_API ebb_status ebb_sampler_count(const ebb_sampler* sampler, int64_t* evaluations,
                                     int64_t* draws);

/* D(x, sigma): writes the data expected behind x, which has `images * elements` numbers, and to
 * `uncond` the same without the condition unless it is NULL (samplers of the CFG++ family ask for
 * it). Returns 0 to go on, anything else to stop. */
typedef int (*ebb_denoise)(void* user, const float* x, double sigma, float* denoised,
                           float* uncond);

/* From x at the first level (see ebb_sampler_start) to x at the last, in place; x is unchanged
 * unless the status is EBB_OK. */
EBB_API ebb_status ebb_sampler_run(ebb_sampler* sampler, float* x, size_t images, size_t elements,
                                   ebb_denoise denoise, void* user);

/* Writes the start of a run: noise of the source and seed at the first level; with `latent`, that
 * noised to the first level (NULL: none). */
EBB_API ebb_status ebb_sampler_start(const ebb_sampler* sampler, const float* latent, size_t images,
                                     size_t elements, float* x);

/* Called after every step; a value other than 0 stops the run with EBB_CANCELLED. `x` is the state
 * at `sigma`, valid during the call. NULL: no calls. */
typedef int (*ebb_progress)(void* user, int64_t step, int64_t steps, double sigma, const float* x);
EBB_API ebb_status ebb_sampler_set_progress(ebb_sampler* sampler, ebb_progress progress,
                                            void* user);

/* Standard normal numbers of yours instead of a named source: for the `index`-th draw of a run
 * (0, 1, ...), on the way between two levels; `index` -1 is the start. Returns 0, or anything else
 * to stop. */
typedef int (*ebb_noise)(void* user, int64_t index, double from, double to, float* out,
                         size_t count);
EBB_API ebb_status ebb_sampler_set_noise(ebb_sampler* sampler, ebb_noise noise, void* user);

/* ---- what there is --------------------------------------------------------------------- */

/* Names in order; NULL past the last. */
EBB_API const char* ebb_sampler_name(size_t index);
EBB_API const char* ebb_dialect_name(size_t index);
/* Lines "option=default  what it does" of a sampler; NULL and an error if it is not known. Valid
 * until this thread's next call. */
EBB_API const char* ebb_sampler_describe(const char* name);

#ifdef __cplusplus
}
#endif

#endif
