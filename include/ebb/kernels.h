/* ebb's kernels from C: functions of tensors in the caller's memory. libebb_kernels.so.
 *
 * A function is prepared for the types of its operands, then called any number of times. All calls
 * return 0, or not 0 with a message in ebb_kernels_error(). Threads may call at once.
 * docs/python.md lists the functions; their texts are those of ebb_kernels_schema(). */
#ifndef EBB_KERNELS_H
#define EBB_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_kernels ebb_kernels;           /* the functions compiled for a device */
typedef struct ebb_kernels_call ebb_kernels_call; /* a function for operands of some types */

enum { EBB_F32 = 0, EBB_BF16 = 1, EBB_F16 = 2 };

/* An operand, or the type of a result. Sizes outermost first; strides count elements. */
typedef struct {
  int32_t dtype; /* EBB_F32, ...; -1: an optional operand that is absent */
  int32_t rank;
  const int64_t* sizes;
  const int64_t* strides;
} ebb_kernels_type;

const char* ebb_kernels_version(void);
/* The message of this thread's last call that failed. */
const char* ebb_kernels_error(void);
/* "rms_norm(Tensor x, Tensor? weight, float eps=1e-06) -> Tensor"; NULL behind the last. */
const char* ebb_kernels_schema(int32_t index);
/* "rms_norm_numbered(Tensor x, Tensor? weight, int attributes) -> Tensor", with a number of
 * ebb_kernels_attributes(), of a function that has gradients: the one behind it. NULL: it has none,
 * or there is no such function. */
const char* ebb_kernels_numbered_schema(int32_t index);

/* device: "cpu", "cuda" or "cuda:1". */
int32_t ebb_kernels_open(const char* device, ebb_kernels** out);
void ebb_kernels_close(ebb_kernels* library); /* also its calls; after their streams are done */

/* Operands in the order of the schema. attributes: "eps=1e-5", in any order; the others have their
 * defaults. The call belongs to the library. */
int32_t ebb_kernels_prepare(ebb_kernels* library, const char* function,
                            const ebb_kernels_type* operands, int32_t operand_count,
                            const char* const* attributes, int32_t attribute_count,
                            const ebb_kernels_call** out);
/* Of result `index`, dense; dtype -1 behind the last. Lives as long as the call. */
ebb_kernels_type ebb_kernels_result(const ebb_kernels_call* call, int32_t index);
int64_t ebb_kernels_workspace(const ebb_kernels_call* call); /* bytes */
/* 1: the strides of this operand are not served, and run() takes it as dense. */
int32_t ebb_kernels_wants_copy(const ebb_kernels_call* call, int32_t operand);
/* Enqueues the work on a CUDA stream (on the CPU it is done at the return). Addresses are multiples
 * of 16 bytes on a GPU, that of the workspace of 64. */
int32_t ebb_kernels_run(const ebb_kernels_call* call, void* const* operands, void* const* results,
                        void* workspace, void* stream);

/* A number for attributes of a function, for the life of the process; -1: some thousands are in use
 * and there are no more, -2: an error. */
int64_t ebb_kernels_attributes(const char* function, const char* const* attributes, int32_t count);

/* The bits of operands whose gradient is that of the function's one result, where both are of one
 * type: nothing need be computed. -1: an error. */
int64_t ebb_kernels_same_gradient(const char* function, const char* const* attributes,
                                  int32_t count);

/* Registers the kernels of all functions with the torch of this process: for the operators of
 * `name_space`, defined before by ebb_kernels_schema() and ebb_kernels_numbered_schema(), and the
 * dispatch key "CUDA" or "CPU". Those with a number have it because torch takes longer for each
 * attribute than for the call. */
int32_t ebb_kernels_register_torch(const char* name_space, const char* key);

#ifdef __cplusplus
}
#endif
#endif
