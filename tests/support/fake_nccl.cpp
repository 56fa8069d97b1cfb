// Built as a library that has NCCL's functions: they record how they are called, and do nothing.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <string>

namespace {
std::ostringstream calls;  // NOLINT
std::string text;          // NOLINT
int next_result = 0;       // NOLINT: of the next collective
int async_error = 0;       // NOLINT
struct Id {
  char bytes[128];
};

int collective(const char* name, const void* in, const void* out, size_t count, int dtype, int last,
               void* comm, void* stream) {
  calls << name << ' ' << in << ' ' << out << ' ' << count << ' ' << dtype << ' ' << last << ' '
        << comm << ' ' << stream << '\n';
  const int result = next_result;
  next_result = 0;
  return result;
}
}  // namespace

extern "C" {
const char* fake_nccl_calls() {
  text = calls.str();
  calls.str("");
  return text.c_str();
}
void fake_nccl_fail(int result, int async) {
  next_result = result;
  async_error = async;
}
int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
int ncclGetUniqueId(Id* id) {
  for (size_t i = 0; i < sizeof id->bytes; ++i) id->bytes[i] = static_cast<char>(i);
  return 0;
}
int ncclCommInitRank(void** comm, int ranks, Id id, int rank) {
  bool right = true;
  for (size_t i = 0; i < sizeof id.bytes; ++i) right = right && id.bytes[i] == static_cast<char>(i);
  calls << "init " << rank << " of " << ranks << (right ? "\n" : " with a wrong id\n");
  *comm = reinterpret_cast<void*>(uintptr_t{0xc0});
  return 0;
}
int ncclCommDestroy(void*) {
  calls << "destroy\n";
  return 0;
}
int ncclCommAbort(void*) {
  calls << "abort\n";
  return 0;
}
int ncclCommGetAsyncError(void*, int* error) {
  *error = async_error;
  return 0;
}
const char* ncclGetErrorString(int result) { return result == 6 ? "remote error" : "an error"; }
const char* ncclGetLastError(void*) { return "the cable is out"; }
int ncclGroupStart() {
  calls << "group\n";
  return 0;
}
int ncclGroupEnd() {
  calls << "end\n";
  return 0;
}
int ncclAllReduce(const void* in, void* out, size_t count, int dtype, int op, void* comm,
                  void* stream) {
  return collective("all_reduce", in, out, count, dtype, op, comm, stream);
}
int ncclReduceScatter(const void* in, void* out, size_t count, int dtype, int op, void* comm,
                      void* stream) {
  return collective("reduce_scatter", in, out, count, dtype, op, comm, stream);
}
int ncclAllGather(const void* in, void* out, size_t count, int dtype, void* comm, void* stream) {
  return collective("all_gather", in, out, count, dtype, 0, comm, stream);
}
int ncclBroadcast(const void* in, void* out, size_t count, int dtype, int root, void* comm,
                  void* stream) {
  return collective("broadcast", in, out, count, dtype, root, comm, stream);
}
}
