#include "ops/table.h"

#include <map>

#include "base/error.h"
#include "base/names.h"

#define X(name)             \
  namespace ebb::ops::def { \
  const ebb::OpDef& name(); \
  }
#include "ebb/gen/ops.inc"
#undef X
#define X(backend, name)           \
  namespace ebb::ops::backend {    \
  std::vector<ebb::Kernel> name(); \
  }
#include "ebb/gen/kernels.inc"
#undef X

namespace ebb {

const std::vector<const OpDef*>& all_ops() {
  static const std::vector<const OpDef*> ops = {
#define X(name) &ops::def::name(),
#include "ebb/gen/ops.inc"
#undef X
  };
  return ops;
}

const OpDef& find_op(std::string_view name) {
  return *find_known("op: unknown name", name, all_ops(), &OpDef::name);
}

namespace {

using KernelTable = std::map<std::string, std::vector<Kernel>, std::less<>>;

KernelTable make_kernel_table() {
  KernelTable table;
  [[maybe_unused]] const auto add = [&](std::string_view backend, std::vector<Kernel> kernels) {
    auto& list = table[std::string(backend)];
    list.insert(list.end(), kernels.begin(), kernels.end());
  };
#define X(backend, name) add(#backend, ops::backend::name());
#include "ebb/gen/kernels.inc"
#undef X
  return table;
}

}  // namespace

const std::vector<Kernel>& all_kernels(std::string_view backend) {
  static const KernelTable table = make_kernel_table();
  static const std::vector<Kernel> none;
  const auto it = table.find(backend);
  return it == table.end() ? none : it->second;
}

std::vector<const Kernel*> kernels_of(std::string_view op, std::string_view backend) {
  std::vector<const Kernel*> out;
  for (const Kernel& k : all_kernels(backend))
    if (k.op == op) out.push_back(&k);
  return out;
}

}  // namespace ebb
