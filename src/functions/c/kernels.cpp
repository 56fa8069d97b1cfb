// The C interface of include/ebb/kernels.h.
#include <ebb/kernels.h>

#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "functions/library.h"
#include "torch/register.h"

using ebb::DType;
using ebb::require;
using ebb::str;
namespace functions = ebb::functions;

struct ebb_kernels_call {
  std::shared_ptr<const functions::Prepared> prepared;  // kept
  size_t operands;
  std::vector<std::vector<int64_t>> strides;  // of the results
};

struct ebb_kernels {
  explicit ebb_kernels(ebb::Context context) : library(std::move(context)) {}
  functions::Library library;
  std::mutex mutex;
  std::map<const functions::Prepared*, ebb_kernels_call> calls;
};

namespace {

thread_local std::string last_error;  // NOLINT: what ebb_kernels_error() returns

int32_t guarded(const auto& f) {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    last_error = e.what();
  } catch (...) {
    last_error = "unknown error";
  }
  return 1;
}

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

int32_t code_of(DType t) {
  for (int32_t i = 0; i < std::ssize(dtypes); ++i)
    if (dtypes[i] == t) return i;
  ebb::fail("kernels: no code for ", t);
}

functions::TensorRef ref(const ebb_kernels_type& t) {
  functions::TensorRef out;
  if (t.dtype == -1) return out;
  require(t.dtype >= 0 && t.dtype < std::ssize(dtypes), "kernels: unknown dtype ", t.dtype);
  require(t.rank >= 0, "kernels: a rank of ", t.rank);
  out.present = true;
  out.dtype = dtypes[t.dtype];
  out.sizes = {t.sizes, static_cast<size_t>(t.rank)};
  out.strides = {t.strides, static_cast<size_t>(t.rank)};
  return out;
}

struct Parse {
  std::string_view text, name;
  functions::AttributeValue operator()(int64_t) const { return ebb::parse_integer(text, name); }
  functions::AttributeValue operator()(double) const { return ebb::parse_number(text, name); }
  functions::AttributeValue operator()(bool) const {
    require(text == "true" || text == "false", "kernels: ", name, " is true or false (got '", text,
            "')");
    return text == "true";
  }
  functions::AttributeValue operator()(const std::string&) const { return std::string(text); }
};

functions::Attributes attributes_of(const functions::Function& f, const char* const* texts,
                                    int32_t count) {
  std::vector<functions::AttributeValue> out;
  for (const functions::Attribute& a : f.attributes) out.push_back(a.value);
  for (int32_t i = 0; i < count; ++i) {
    const std::string_view text = texts[i];
    const size_t equals = std::min(text.find('='), text.size());
    const std::string_view name = text.substr(0, equals);
    size_t at = 0;
    while (at < out.size() && f.attributes[at].name != name) ++at;
    require(at < out.size() && equals < text.size(), "kernels: ", f.name, " has no attribute '",
            name, "'");
    out[at] = std::visit(Parse{text.substr(equals + 1), name}, f.attributes[at].value);
  }
  return functions::Attributes(std::move(out));
}

ebb::Context context_of(std::string_view device) {
  const size_t colon = device.find(':');
  if (colon == std::string_view::npos) return ebb::open_context(device);
  const auto index =
      static_cast<int>(ebb::parse_integer(device.substr(colon + 1), "kernels: index"));
  return ebb::open_context(device.substr(0, colon), {.index = index});
}

// Of all functions.
std::vector<std::string> texts_of(std::string (*text)(const functions::Function&)) {
  std::vector<std::string> out;
  for (const functions::Function& f : functions::all_functions()) out.push_back(text(f));
  return out;
}
const char* at(const std::vector<std::string>& texts, int32_t index) {
  return index >= 0 && index < std::ssize(texts) ? texts[static_cast<size_t>(index)].c_str()
                                                 : nullptr;
}

}  // namespace

const char* ebb_kernels_version(void) {
  return
#include "ebb/gen/version.inc"
      ;
}

const char* ebb_kernels_error(void) { return last_error.c_str(); }

const char* ebb_kernels_schema(int32_t index) {
  static const std::vector<std::string> all = texts_of(functions::schema);
  return at(all, index);
}

const char* ebb_kernels_numbered_schema(int32_t index) {
  static const std::vector<std::string> all = texts_of(functions::numbered_schema);
  const char* found = at(all, index);
  return found == nullptr || *found == 0 ? nullptr : found;
}

int32_t ebb_kernels_open(const char* device, ebb_kernels** out) {
  return guarded([&] { *out = new ebb_kernels(context_of(device)); });
}

void ebb_kernels_close(ebb_kernels* library) { delete library; }

int32_t ebb_kernels_prepare(ebb_kernels* library, const char* function,
                            const ebb_kernels_type* operands, int32_t operand_count,
                            const char* const* attributes, int32_t attribute_count,
                            const ebb_kernels_call** out) {
  return guarded([&] {
    const functions::Function& f = functions::find_function(function);
    std::vector<functions::TensorRef> in;
    for (int32_t i = 0; i < operand_count; ++i) in.push_back(ref(operands[i]));
    auto p = library->library.prepare(f, in, attributes_of(f, attributes, attribute_count));
    const std::lock_guard lock(library->mutex);
    const auto [it, is_new] =
        library->calls.try_emplace(p.get(), ebb_kernels_call{p, in.size(), {}});
    if (is_new)
      for (const ebb::Type& t : p->results()) it->second.strides.push_back(t.shape.strides());
    *out = &it->second;
  });
}

ebb_kernels_type ebb_kernels_result(const ebb_kernels_call* call, int32_t index) {
  const auto& results = call->prepared->results();
  if (index < 0 || index >= std::ssize(results)) return {-1, 0, nullptr, nullptr};
  const auto at = static_cast<size_t>(index);
  const ebb::Type& t = results[at];
  return {code_of(t.dtype), static_cast<int32_t>(t.shape.rank()), t.shape.sizes().data(),
          call->strides[at].data()};
}

int64_t ebb_kernels_workspace(const ebb_kernels_call* call) {
  return call->prepared->workspace_bytes();
}

int32_t ebb_kernels_wants_copy(const ebb_kernels_call* call, int32_t operand) {
  return operand >= 0 && static_cast<size_t>(operand) < call->operands &&
         call->prepared->wants_copy(static_cast<size_t>(operand));
}

int32_t ebb_kernels_run(const ebb_kernels_call* call, void* const* operands, void* const* results,
                        void* workspace, void* stream) {
  return guarded([&] {
    call->prepared->run({operands, call->operands}, {results, call->prepared->results().size()},
                        workspace, stream);
  });
}

int64_t ebb_kernels_attributes(const char* function, const char* const* attributes, int32_t count) {
  int64_t number = -1;
  const int32_t failed = guarded([&] {
    const functions::Function& f = functions::find_function(function);
    number = functions::number_of(f, attributes_of(f, attributes, count));
  });
  return failed ? -2 : number;
}

int64_t ebb_kernels_same_gradient(const char* function, const char* const* attributes,
                                  int32_t count) {
  int64_t bits = 0;
  const int32_t failed = guarded([&] {
    const functions::Function& f = functions::find_function(function);
    if (f.same_gradient) bits = f.same_gradient(attributes_of(f, attributes, count).values);
  });
  return failed ? -1 : bits;
}

int32_t ebb_kernels_register_torch(const char* name_space, const char* key) {
  return guarded([&] { ebb::torch::register_functions(name_space, key); });
}
