#include "backend/cuda/device/device.h"

#include <array>
#include <exception>
#include <mutex>
#include <sstream>
#include <utility>

#include "backend/cuda/device/blocking.h"
#include "backend/cuda/device/card_memory.h"
#include "backend/cuda/device/compiled_code.h"
#include "backend/cuda/device/connect.h"
#include "backend/cuda/device/error.h"
#include "backend/cuda/device/staging.h"
#include "backend/cuda/device/thread_state.h"
#include "backend/cuda/generated/cluster_occupancy.h"
#include "backend/cuda/nccl/communicator.h"
#include "backend/cuda/ptx/compiler.h"
#include "core/out_of_memory.h"

namespace ebb::cuda {
namespace {

class DeviceBuffer final : public Buffer {
 public:
  // `counter`: of the bytes of all that live.
  DeviceBuffer(void* data, int64_t bytes, int device, std::shared_ptr<std::atomic<int64_t>> counter)
      : data_(data), bytes_(bytes), device_(device), counter_(std::move(counter)) {
    *counter_ += bytes_;
  }
  ~DeviceBuffer() override {
    *counter_ -= bytes_;
    try {
      const OnDevice here(device_);
      const RelaxedCapture relaxed;  // of whichever thread
      cudaFree(data_);               // waits for what runs
    } catch (const Error&) {
      // the process ends, and CUDA with it
    }
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  bool on_host() const override { return false; }

 private:
  void* data_;
  int64_t bytes_;
  int device_;
  std::shared_ptr<std::atomic<int64_t>> counter_;
};

// Work recorded once as a CUDA graph and launched as one.
class CudaGraph final : public CapturedGraph {
 public:
  CudaGraph(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "instantiating a graph");
    check(cudaGraphUpload(exec_, stream), "uploading a graph");
  }
  ~CudaGraph() override { cudaGraphExecDestroy(exec_); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void run() override { check(cudaGraphLaunch(exec_, stream_), "launching a graph"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
  cudaStream_t stream_;
};

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(cudaStream_t stream) {
    check(cudaEventCreate(&event_), "making an event");
    check(cudaEventRecord(event_, stream), "marking a moment");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cudaEvent_t event() const { return event_; }
  double seconds_since(const Event& earlier) const override {
    float milliseconds = 0;
    check(cudaEventSynchronize(event_), "waiting for the device");
    check(
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event(), event_),
        "measuring time");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

int attribute(cudaDeviceAttr a, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, a, index), "asking for the device's limits");
  return value;
}

// Of the GPU, or of the part of it that is a device here.
std::string uuid_of(int index) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), "asking for the device's number");
  std::ostringstream out;
  for (const char byte : properties.uuid.bytes)
    out << std::hex << static_cast<int>(static_cast<uint8_t>(byte)) << ' ';
  return out.str();
}

std::string bus_id_of(int index) {
  std::array<char, 32> text{};
  check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), index),
        "asking for the device's place");
  return text.data();
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-6; }

}  // namespace

struct CudaDevice::LazyStaging {
  std::mutex making;
  std::unique_ptr<Staging> staging;
};

CudaDevice::CudaDevice(int index)
    : index_(index),
      staging_(std::make_unique<LazyStaging>()),
      compiler_(std::make_unique<Compiler>(index)) {
  const std::string bus_id = bus_id_of(index);
  const auto before = taken_of_card(bus_id);
  const OnDevice here(index);
  const RelaxedCapture relaxed;
  free_at_first_ = free_memory();  // makes the context
  const auto after = taken_of_card(bus_id);
  if (before && after) context_bytes_ = std::max<int64_t>(*after - *before, 0);
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), "asking for the device's name");
  constexpr double kilohertz = 1e3, bits_per_byte = 8, transfers_per_clock = 2;
  const double memory_clock = kilohertz * attribute(cudaDevAttrMemoryClockRate, index);
  const int64_t shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  chip_ = {.name = properties.name,
           .capability = properties.major * 10 + properties.minor,
           .sm_count = properties.multiProcessorCount,
           .shared_per_block = shared,
           .clock = kilohertz * attribute(cudaDevAttrClockRate, index),
           .bytes_per_second = memory_clock * transfers_per_clock *
                               attribute(cudaDevAttrGlobalMemoryBusWidth, index) / bits_per_byte,
           .max_clusters = [shared](int cluster, int64_t blocks) {
             return cluster_occupancy(cluster, blocks, shared);
           }};
  require(chip_.capability >= 75, "cuda: needs compute capability 7.5 or newer (", chip_.name,
          " has ", properties.major, ".", properties.minor, ")");
  require(has_compiled_code(), "cuda: this build has no code for compute capability ",
          properties.major, ".", properties.minor, " (", chip_.name, "), only for ",
          compiled_targets());
  const auto make = [](cudaStream_t& s, int priority) {
    check(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, priority), "making a stream");
  };
  int least = 0, greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
  make(stream_, least);
  make(copy_stream_, least);
  make(side_stream(SideStream::compute), least);
  make(side_stream(SideStream::collectives), greatest);  // others wait for what it computes
  void* fault = nullptr;
  check(cudaHostAlloc(&fault, sizeof(Fault), cudaHostAllocMapped), "allocating host memory");
  fault_ = new (fault) Fault{};
}

CudaDevice::CudaDevice(Chip chip)
    : chip_(std::move(chip)),
      staging_(std::make_unique<LazyStaging>()),
      compiler_(std::make_unique<Compiler>(0)) {}

CudaDevice::~CudaDevice() {
  if (index_ < 0) return;
  if (std::uncaught_exceptions() > 0)
    communicator_.reset();  // what waits for others would for ever
  for (const cudaStream_t s : side_streams_) cudaStreamSynchronize(s);
  cudaStreamSynchronize(stream_);
  communicator_.reset();
  staging_.reset();
  cudaFreeHost(fault_);
  for (const cudaStream_t s : side_streams_) cudaStreamDestroy(s);
  cudaStreamDestroy(copy_stream_);
  cudaStreamDestroy(stream_);
}

namespace {
thread_local OnStream* innermost = nullptr;
}

OnStream::OnStream(const CudaDevice& device, cudaStream_t stream)
    : device_(device), stream_(stream), outer_(std::exchange(innermost, this)) {}

OnStream::~OnStream() { innermost = outer_; }

OnStream* CudaDevice::on_stream() const {
  OnStream* s = innermost;
  while (s && &s->device_ != this) s = s->outer_;
  return s;
}

cudaStream_t CudaDevice::stream() const {
  const OnStream* s = on_stream();
  return s ? s->stream_ : stream_;
}

bool CudaDevice::take_early_start() {
  if (OnStream* s = on_stream()) return std::exchange(s->started_, true);
  return !std::exchange(waited_, false);
}

std::string CudaDevice::description() const {
  return str(chip_.name, ", ", chip_.sm_count, " SMs, compute capability ", chip_.capability / 10,
             ".", chip_.capability % 10, index_ >= 0 ? "" : " (described, not here)");
}

bool CudaDevice::fast_in(DType dtype) const {
  return dtype == DType::f32 || dtype == DType::f16 || (dtype == DType::bf16 && capability() >= 80);
}

void CudaDevice::require_here() const {
  require(index_ >= 0, "cuda: the device is only described, nothing can run on it  ", chip_.name);
}

int64_t CudaDevice::free_memory() const {
  require_here();
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  return static_cast<int64_t>(free);
}

// What other processes take meanwhile looks like ours.
DriverMemory CudaDevice::driver_memory() const {
  if (index_ < 0) return {};
  // Code and graphs come with the first run: 16 to 34 MB on an H200.
  constexpr int64_t later = 40'000'000;
  const int64_t since = std::max<int64_t>(free_at_first_ - free_memory() - *allocated_, 0);
  if (context_bytes_ == 0) return {.first = 0, .now = since};  // not known
  const int64_t first = context_bytes_ + later;
  return {.first = first, .now = std::max(first, context_bytes_ + since)};
}

// As cudaMalloc does: small ones share pages, others have pages of their own.
int64_t CudaDevice::rounded(int64_t bytes) const {
  constexpr int64_t page = int64_t{2} << 20, small = page / 2;
  return bytes <= small ? bytes : (bytes + page - 1) / page * page;
}

std::shared_ptr<Buffer> CudaDevice::allocate(int64_t bytes) {
  require_here();
  constexpr int64_t smallest = 16;
  void* data = nullptr;
  const int64_t size = std::max(bytes, smallest);
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(size));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // the error is not sticky; the device goes on
    throw OutOfMemory(str("cuda: out of memory (", megabytes(size), " MB needed at once, ",
                          megabytes(free_memory()), " MB free)"));
  }
  check(status, "allocating memory");
  auto buffer = std::make_shared<DeviceBuffer>(data, size, index_, allocated_);
  check(cudaMemsetAsync(data, 0, static_cast<size_t>(size), stream()), "clearing memory");
  return buffer;
}

void CudaDevice::copy(const Tensor& from, const Tensor& to) {
  require(from.type() == to.type(), "copy: types differ (", from.type(), ", ", to.type(), ")");
  if (from.bytes() == 0) return;
  if (from.buffer()->on_host() && !to.buffer()->on_host()) {
    staging().copy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()), stream());
    return;
  }
  check(cudaMemcpyAsync(to.raw(), from.raw(), static_cast<size_t>(from.bytes()), cudaMemcpyDefault,
                        stream()),
        "copying");
  if (to.buffer()->on_host()) synchronize();
}

void CudaDevice::fetch(std::span<const Copied> results) {
  if (!results.empty()) staging().fetch(results, stream(), [this] { synchronize(); });
}

void CudaDevice::fill(const Tensor& to, const ReadBytes& read) {
  staging().fill(to.raw(), to.bytes(), read, stream());
}

Staging& CudaDevice::staging() {
  require_here();
  const std::lock_guard lock(staging_->making);
  if (!staging_->staging) staging_->staging = std::make_unique<Staging>(index_);
  return *staging_->staging;
}

void CudaDevice::synchronize() {
  require_here();
  cudaError_t status = cudaStreamSynchronize(stream());
  if (status == cudaSuccess) status = cudaStreamSynchronize(stream_);
  // after an error the main stream may not have waited for the side streams
  for (const cudaStream_t s : side_streams_)
    if (status == cudaSuccess) status = cudaStreamSynchronize(s);
  check(status, "waiting for the device");
  const Fault f = std::exchange(*fault_, Fault{});
  require(f.code != id_out_of_range, "embedding: an id is out of range (", f.value, " of ", f.limit,
          ")");
}

std::unique_ptr<CapturedGraph> CudaDevice::capture(const std::function<void()>& work) {
  require_here();
  if (launch_blocking()) return nullptr;
  cudaGraph_t graph = nullptr;
  const cudaStream_t here = stream();
  check(cudaStreamBeginCapture(here, cudaStreamCaptureModeThreadLocal), "recording a graph");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(here, &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(here, &graph), "recording a graph");
  return std::make_unique<CudaGraph>(graph, here);
}

std::unique_ptr<Event> CudaDevice::record_event() {
  require_here();
  return std::make_unique<CudaEvent>(stream());
}

std::unique_ptr<Event> CudaDevice::on_side_stream(SideStream which,
                                                  const std::function<void()>& work) {
  const auto here = record_event();
  const OnStream side(*this, side_stream(which));
  wait(*here);
  work();
  return record_event();
}

void CudaDevice::wait(const Event& event) {
  check(cudaStreamWaitEvent(stream(), static_cast<const CudaEvent&>(event).event()),
        "waiting for other work");
  finish_before_next();
}

void CudaDevice::finish_before_next() {
  if (OnStream* s = on_stream())
    s->started_ = false;
  else
    waited_ = true;
}

void CudaDevice::run_current(const std::function<void()>& work) {
  const OnDevice here(index_);
  work();
}

void CudaDevice::run_on(void* stream, const std::function<void()>& work) {
  const OnDevice here(index_);
  const OnStream on(*this, static_cast<cudaStream_t>(stream));
  work();
}

void CudaDevice::run_beside(const std::function<void()>& work) {
  require_here();
  run_on(copy_stream_, work);
  check(cudaStreamSynchronize(copy_stream_), "copying to the device");
}

void CudaDevice::run_loading(const std::function<void()>& work) {
  const OnDevice here(index_);
  const RelaxedCapture relaxed;
  work();
}

void CudaDevice::join(RankGroup& group) {
  require_here();
  check(cudaSetDevice(index_), "choosing the device");
  const RelaxedCapture relaxed;
  nccl::check_own_gpu(group, uuid_of(index_), str("GPU ", bus_id_of(index_), " of ", chip_.name));
  communicator_ = connect(group, *this, bus_id_of(index_));
}

}  // namespace ebb::cuda
