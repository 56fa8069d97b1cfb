#include "backend/cuda/nccl/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"

namespace ebb::cuda::nccl {
namespace {

constexpr const char* file_name = "libnccl.so.2";

class Functions {
 public:
  Functions(void* handle, const std::string& path) : handle_(handle), path_(path) {}
  template <class F>
  void optional(F*& f, const char* name) const {
    f = reinterpret_cast<F*>(dlsym(handle_, name));
  }
  template <class F>
  void find(F*& f, const char* name) const {
    optional(f, name);
    require(f != nullptr, "nccl: the library lacks ", name, "; 2.10 or newer is needed  ", path_);
  }

 private:
  void* handle_;
  const std::string& path_;
};

Library functions_of(void* handle, const std::string& path) {
  const Functions in(handle, path);
  Library l{};
  in.find(l.get_version, "ncclGetVersion");
  in.find(l.get_unique_id, "ncclGetUniqueId");
  in.find(l.comm_init_rank, "ncclCommInitRank");
  in.find(l.comm_destroy, "ncclCommDestroy");
  in.find(l.comm_abort, "ncclCommAbort");
  in.find(l.comm_get_async_error, "ncclCommGetAsyncError");
  in.find(l.get_error_string, "ncclGetErrorString");
  in.optional(l.get_last_error, "ncclGetLastError");
  in.find(l.group_start, "ncclGroupStart");
  in.find(l.group_end, "ncclGroupEnd");
  in.find(l.all_reduce, "ncclAllReduce");
  in.find(l.reduce_scatter, "ncclReduceScatter");
  in.find(l.all_gather, "ncclAllGather");
  in.find(l.broadcast, "ncclBroadcast");
  int version = 0;
  constexpr int oldest = 21000;  // the first with bf16
  l.check(l.get_version(&version), "asking for its version");
  require(version >= oldest, "nccl: 2.10 or newer is needed (", l.version(), ")  ", path);
  return l;
}

namespace fs = std::filesystem;

// The folders in `folders` whose names begin and end so.
std::vector<fs::path> inside(const std::vector<fs::path>& folders, std::string_view begin,
                             std::string_view end = "") {
  std::vector<fs::path> out;
  for (const fs::path& folder : folders) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(begin) && name.ends_with(end)) out.push_back(entry.path());
    }
  }
  std::ranges::sort(out);
  return out;
}

void add_existing(const std::vector<fs::path>& folders, std::vector<std::string>& out) {
  std::error_code none;
  for (const fs::path& folder : folders)
    if (fs::exists(folder / file_name, none)) out.push_back((folder / file_name).string());
}

}  // namespace

int number_of(DType dtype) {
  switch (dtype) {
    case DType::u8: return 1;
    case DType::i32: return 2;
    case DType::i64: return 4;
    case DType::f16: return 6;
    case DType::f32: return 7;
    case DType::bf16: return 9;
  }
  return -1;
}

void Library::check(Result result, const char* what) const {
  if (result == success || result == in_progress) return;
  const std::string more = get_last_error != nullptr ? get_last_error(nullptr) : "";
  fail("nccl: ", what, " failed (", get_error_string(result), more.empty() ? "" : ": ", more,
       "); NCCL_DEBUG=INFO makes it say more");
}

std::string Library::version() const {
  constexpr int major = 10000, minor = 100;
  int v = 0;
  get_version(&v);
  return str(v / major, ".", v % major / minor, ".", v % minor);
}

std::vector<std::string> places(const Environment& environment) {
  const auto variable = [&](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? "" : it->second;
  };
  if (const std::string named = variable("EBB_NCCL"); !named.empty()) {
    const fs::path path(named);
    return {fs::is_directory(path) ? (path / file_name).string() : named};
  }
  std::vector<std::string> out{file_name};
  add_existing(inside(inside({"/usr/local"}, "cuda"), "lib"), out);
  std::vector<fs::path> wheels;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (!variable(name).empty()) wheels.push_back(fs::path(variable(name)) / "lib");
  if (!variable("HOME").empty()) wheels.push_back(fs::path(variable("HOME")) / ".local" / "lib");
  wheels.insert(wheels.end(), {"/usr/local/lib", "/usr/lib"});
  wheels = inside(inside(wheels, "python3"), "", "-packages");
  for (fs::path& w : wheels) w = w / "nvidia" / "nccl" / "lib";
  add_existing(wheels, out);
  return out;
}

Library load(const std::vector<std::string>& places) {
  std::string tried;
  for (const std::string& place : places) {
    if (void* const handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL))
      return functions_of(handle, place);
    tried += str("  ", dlerror());
  }
  fail(
      "nccl: GPUs that do not reach each other's memory need NCCL, and it was not found: Debian's "
      "or NVIDIA's package libnccl2 has it, or `pip install nvidia-nccl-cu13`; EBB_NCCL says where "
      "libnccl.so.2 is",
      tried);
}

const Library& library() {
  static const Library l = [] {
    Environment environment;
    for (const char* name : {"EBB_NCCL", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"})
      if (const char* value = std::getenv(name)) environment[name] = value;
    return load(places(environment));
  }();
  return l;
}

}  // namespace ebb::cuda::nccl
