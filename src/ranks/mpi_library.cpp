#include "ranks/mpi_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "ranks/mpi/table.h"

namespace ebb::ranks {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> places() {
  if (const char* named = std::getenv("EBB_MPI")) return {named};
  constexpr const char* name = "libebb_mpi.so";
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  return {(here / name).string(), (here / ".." / "lib" / "ebb" / name).lexically_normal().string()};
}

const MpiTable* find_table() {
  std::string tried;
  for (const std::string& place : places()) {
    // MPI's own plug-ins look for its symbols among the global ones.
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      tried += str("  ", dlerror());
      continue;
    }
    const auto table = reinterpret_cast<MpiTableFunction>(dlsym(library, mpi_table_name));
    require(table != nullptr && table()->version == mpi_table_version,
            "mpi: the library must be of the same ebb  ", place);
    return table();
  }
  fail(
      "mpi: libebb_mpi.so is missing: ebb is built with it where MPI's headers are (Debian: "
      "libopenmpi-dev), and EBB_MPI says where it is",
      tried);
}

void check(const char* what, const char* error) {
  require(error == nullptr, "mpi: ", what, " failed (", error == nullptr ? "" : error, ")");
}

}  // namespace

std::shared_ptr<MpiLibrary> MpiLibrary::open() {
  static std::mutex mutex;
  static std::weak_ptr<MpiLibrary> opened;
  static bool begun = false;
  const std::lock_guard lock(mutex);
  if (auto here = opened.lock()) return here;
  require(!begun, "mpi: it has ended in this process and cannot begin again");
  std::shared_ptr<MpiLibrary> out(new MpiLibrary);
  begun = true;
  opened = out;
  return out;
}

MpiLibrary::MpiLibrary() : table_(find_table()) {
  check("MPI_Init", table_->init(&rank_, &ranks_));
}

MpiLibrary::~MpiLibrary() {
  if (std::uncaught_exceptions() == 0) table_->finalize();
}

std::string MpiLibrary::description() const { return table_->description(); }

void MpiLibrary::broadcast(std::span<uint8_t> data) {
  check("MPI_Bcast", table_->broadcast(data.data(), static_cast<int64_t>(data.size())));
}

void MpiLibrary::all_gather(const void* in, void* out, int64_t bytes) {
  check("MPI_Allgather", table_->all_gather(in, out, bytes));
}

void MpiLibrary::all_to_all(const void* in, void* out, int64_t bytes) {
  check("MPI_Alltoall", table_->all_to_all(in, out, bytes));
}

}  // namespace ebb::ranks
