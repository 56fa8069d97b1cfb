// call: what a kernel of an operator does, from PyTorch's stack to the results on it.
#pragma once

#include "functions/function.h"
#include "torch/shim.h"

namespace ebb::torch {

// Takes the arguments off `stack`, in the order of the function's schema, and puts the results
// there, which torch's allocator gives. The work goes to the tensors' device, to torch's current
// stream there. Throws Error that names the function.
void call(const functions::Function& f, StackValue* stack);
// The same where a number stands for the attributes (functions/attributes.h).
void call_numbered(const functions::Function& f, StackValue* stack);

}  // namespace ebb::torch
