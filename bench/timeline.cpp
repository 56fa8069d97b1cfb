// A library that CUDA's driver loads into a program (CUDA_INJECTION64_PATH): writes what its device
// does as one line each, also of nodes of CUDA graphs, to $TIMELINE_OUT.<pid>:
//   kernel|copy|set  start ns  end ns  correlation (one a graph launch)  bytes  name
// bench/timeline.py compiles it, runs a training step with it and reads the lines.

#include <cupti.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::FILE* out;

template <class Record>
void write_line(const char* kind, const Record& record, unsigned long long bytes,
                const char* name) {
  std::fprintf(out, "%s\t%llu\t%llu\t%u\t%llu\t%s\n", kind,
               static_cast<unsigned long long>(record.start),
               static_cast<unsigned long long>(record.end), record.correlationId, bytes, name);
}

void write_record(const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(record);
      write_line("kernel", kernel, 0, kernel.name);
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      write_line("copy", copy, copy.bytes, "");
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
      write_line("copy", copy, copy.bytes, "peer");
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      write_line("set", set, set.bytes, "");
      break;
    }
    default: break;
  }
}

void CUPTIAPI request(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = size_t{8} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *most_records = 0;
}

void CUPTIAPI complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t size) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, size, &record) == CUPTI_SUCCESS) write_record(record);
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
  std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  const char* path = std::getenv("TIMELINE_OUT");
  if (!path) return 0;
  out = std::fopen((std::string(path) + "." + std::to_string(getpid())).c_str(), "w");
  if (!out) return 0;
  cuptiActivityRegisterCallbacks(request, complete);
  for (const auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                          CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET})
    cuptiActivityEnable(kind);
  std::atexit(finish);
  return 1;
}
