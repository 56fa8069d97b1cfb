// Storage formats: how files keep the numbers of a weight, and what a graph makes of them.
//
// A parameter of an inference graph is a source of the file's shape and format; decode() adds what
// the network reads. Formats whose elements do not lie one by one (blocks with a scale each) will
// be rows of the table in storage.cpp, too.
#pragma once

#include <string_view>

#include "ir/graph.h"
#include "nn/weight_spec.h"

namespace ebb::nn {

struct StorageFormat {
  DType dtype;                   // of a tensor in this format
  std::string_view help;         // a line for people
  Value (*widen)(Value stored);  // its numbers as f32, exactly
};
// Null: files may have such tensors, but they are widened when they are read.
const StorageFormat* storage_format(DType dtype);

// The weight as the network reads it, f32 in its layout, of a tensor as files have it; transposed:
// of files that keep a matrix [O,I] as [I,O]. Order comes first, so that what reads few bits of the
// numbers reads what the file has. Throws Error for another shape.
Value decode(const Weight& w, Value stored, bool transposed = false);

}  // namespace ebb::nn
