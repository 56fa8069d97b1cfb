#include "backend/cuda/device/thread_state.h"

#include <cuda.h>

#include <map>
#include <mutex>

#include "backend/cuda/device/driver_function.h"

namespace ebb::cuda {
namespace {

// Of the driver, looked up by whoever needs another device than the current one.
struct Contexts {
  CUresult (*device)(CUdevice*, int) = driver_function<decltype(device)>("cuDeviceGet");
  CUresult (*retain)(CUcontext*,
                     CUdevice) = driver_function<decltype(retain)>("cuDevicePrimaryCtxRetain");
  CUresult (*push)(CUcontext) = driver_function<decltype(push)>("cuCtxPushCurrent");
  CUresult (*pop)(CUcontext*) = driver_function<decltype(pop)>("cuCtxPopCurrent");

  // The one that the runtime uses too; kept for the life of the process.
  CUcontext of(int index) {
    const std::lock_guard lock(mutex);
    CUcontext& context = all[index];
    if (context != nullptr) return context;
    CUdevice found = 0;
    CUresult status = device(&found, index);
    if (status == CUDA_SUCCESS) status = retain(&context, found);
    require(status == CUDA_SUCCESS, "cuda: choosing device ", index, " failed (",
            static_cast<int>(status), ")");
    return context;
  }

  std::mutex mutex;
  std::map<int, CUcontext> all;
};

Contexts& contexts() {
  static Contexts c;
  return c;
}

}  // namespace

OnDevice::OnDevice(int index) {
  int before = 0;
  check(cudaGetDevice(&before), "asking for the device");
  if (before == index) return;
  const CUresult status = contexts().push(contexts().of(index));
  require(status == CUDA_SUCCESS, "cuda: choosing device ", index, " failed (",
          static_cast<int>(status), ")");
  pushed_ = true;
}

OnDevice::~OnDevice() {
  CUcontext mine = nullptr;
  if (pushed_) contexts().pop(&mine);
}

}  // namespace ebb::cuda
