// Golden Philox numbers of cuRAND, its device code compiled for the host: prints noise_curand.json.
//
//     nvcc -std=c++17 -o curand_golden curand_golden.cu && ./curand_golden > noise_curand.json
//
// The host's sinf and cosf stand for the device's approximations (differences near 5e-7).

#include <cstdio>

#define QUALIFIERS static __forceinline__ __host__ __device__
#include <curand.h>
#include <curand_kernel.h>

namespace {

using State = curandStatePhilox4_32_10_t;
using u64 = unsigned long long;

State fresh(u64 seed, u64 subsequence, u64 offset) {
  State state;
  curand_init(seed, subsequence, offset, &state);
  return state;
}

void print_case(u64 seed, u64 subsequence, u64 offset) {
  State words = fresh(seed, subsequence, offset);
  State normal = words;
  State uniform = words;
  State wide = words;
  const uint4 w = curand4(&words);
  const float4 u = curand_uniform4(&uniform);
  const float4 n = curand_normal4(&normal);
  const double2 d = curand_normal2_double(&wide);
  std::printf("{\"seed\":\"%llu\",\"subsequence\":\"%llu\",\"offset\":%llu,", seed, subsequence,
              offset);
  std::printf("\"words\":[%u,%u,%u,%u],", w.x, w.y, w.z, w.w);
  std::printf("\"uniform4\":[%.9g,%.9g,%.9g,%.9g],", u.x, u.y, u.z, u.w);
  std::printf("\"normal4\":[%.9g,%.9g,%.9g,%.9g],", n.x, n.y, n.z, n.w);
  std::printf("\"normal2_double\":[%.16g,%.16g]}", d.x, d.y);
}

}  // namespace

int main() {
  const u64 seeds[] = {0, 42, (1ull << 32) + 42, (1ull << 63) + 7};
  const u64 subsequences[] = {0, 1, 1000, 1ull << 32};
  const u64 offsets[] = {0, 4, 400};
  std::printf("{\n\"reference\": {\"name\":\"cuRAND\",\"version\":\"%d.%d.%d\"},\n",
              CURAND_VER_MAJOR, CURAND_VER_MINOR, CURAND_VER_PATCH);
  std::printf(
      "\"notes\": \"Philox4_32_10: curand_init(seed, subsequence, offset), then one call\",\n");
  std::printf("\"cases\": [");
  const char* comma = "\n";
  for (u64 seed : seeds) {
    for (u64 subsequence : subsequences) {
      for (u64 offset : offsets) {
        std::printf("%s", comma);
        print_case(seed, subsequence, offset);
        comma = ",\n";
      }
    }
  }
  std::printf("\n]\n}\n");
  return 0;
}
