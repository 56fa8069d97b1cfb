#include "backend/cuda/generated/kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "backend/cuda/ptx/emit.h"
#include "base/error.h"
#include "codegen/loops/map_flat.h"

namespace ebb::cuda {

using codegen::LoopKernel;
using codegen::SharedLaunch;

Addresses AddressCounter::next(const std::vector<size_t>& of_operands,
                               const codegen::SlicesForm& slices, const std::vector<DType>& types,
                               size_t results) {
  Addresses a;
  for (size_t i = 0; i < of_operands.size(); ++i)
    for (size_t k = 0; k < of_operands[i]; ++k)
      a.in.push_back({in_++, slices.has(i) ? slices.begin[i] * size_of(types[i]) : 0});
  for (size_t k = 0; k < results; ++k) a.out.push_back({out_++, 0});
  return a;
}

void PreparedLaunch::fill(std::span<char> to, std::span<void* const> in_tensors,
                          std::span<void* const> out_tensors) const {
  std::memcpy(to.data(), parameters.data(), parameters.size());
  const auto write = [&](const std::vector<Field>& fields, std::span<void* const> tensors) {
    for (const Field& f : fields) {
      require(f.address.tensor < tensors.size(), "generated kernel: a run has too few tensors (",
              tensors.size(), ")");
      void* const at = static_cast<char*>(tensors[f.address.tensor]) + f.address.bytes;
      std::memcpy(to.data() + f.at, &at, sizeof at);
    }
  };
  write(in, in_tensors);
  write(out, out_tensors);
}

PreparedLaunch prepared_launch(const char* name, std::span<LoopKernel> uses,
                               std::span<const Addresses> addresses) {
  require(uses.size() == 1 || share_a_launch(uses), name,
          ": uses of several kernels, or too many (", uses.size(), ")");
  const int64_t bytes = uses[0].parameters.size();
  const auto count = static_cast<int>(uses.size());
  SharedLaunch all(count, bytes);
  PreparedLaunch launch;
  for (int u = 0; u < count; ++u) {
    const LoopKernel& use = uses[static_cast<size_t>(u)];
    const Addresses& tensors = addresses[static_cast<size_t>(u)];
    const int64_t first = SharedLaunch::use_at(u, count, bytes);
    auto field = use.pointers.begin();
    for (const size_t i : use.used) launch.in.push_back({first + *field++, tensors.in[i]});
    for (const TensorAddress& to : tensors.out) launch.out.push_back({first + *field++, to});
    require(field == use.pointers.end(), name, ": ", tensors.out.size(), " results of a kernel of ",
            use.pointers.size(), " addresses");
    all.add(use.parameters, use.blocks);
  }
  launch.shape = {.grid = static_cast<unsigned>(all.blocks()),
                  .block = static_cast<unsigned>(uses[0].threads),
                  .shared = uses[0].shared,
                  .cluster = static_cast<unsigned>(uses[0].cluster)};
  launch.parameters = all.parameters().bytes();
  return launch;
}

GeneratedKernel::GeneratedKernel(const char* name, Generated kernel, PreparedLaunch launch)
    : name_(name), kernel_(std::move(kernel)), launch_(std::move(launch)) {
  require(std::cmp_less_equal(launch_.parameters.size(), codegen::most_parameters), name,
          ": too many parameters (", launch_.parameters.size(), " bytes of ",
          codegen::most_parameters, ")");
}

void GeneratedKernel::run(std::span<void* const> in, std::span<void* const> out,
                          CudaDevice& device) const {
  alignas(8) std::array<char, codegen::most_parameters> parameters;  // as far as it is needed
  launch_.fill(parameters, in, out);
  void* arguments[] = {parameters.data()};
  launch_kernel(name_, kernel_.get(), launch_.shape, arguments, device);
}

Generated compiled(const char* name, const codegen::Kernel& kernel, CudaDevice& device) {
  return device.compiler().kernel(emit_ptx(kernel, device.capability()), name);
}

codegen::Target target_of(const CudaDevice& device) {
  codegen::Target target = target_of(device.capability());
  const Chip& chip = device.chip();
  target.sm_count = chip.sm_count;
  target.shared_per_block = chip.shared_per_block;
  target.max_clusters = chip.max_clusters;
  return target;
}

}  // namespace ebb::cuda
