#include "io/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "io/file.h"

namespace ebb::io {
namespace {

constexpr int64_t data_limit = int64_t{8} << 30;  // bytes

// The file's bytes in order, inflated if it is gzipped.
class Input {
 public:
  explicit Input(const std::string& path)
      : file_(ReadFile::open(path, "idx")), chunk_(size_t{1} << 16) {
    std::array<uint8_t, 2> magic{};
    if (file_.size() >= 2) file_.read(0, magic);
    zipped_ = magic[0] == 0x1f && magic[1] == 0x8b;
    // 16: a gzip wrapper, checked with its CRC.
    if (zipped_) require(inflateInit2(&z_, 16 + MAX_WBITS) == Z_OK, "idx: zlib does not start");
  }
  ~Input() {
    if (zipped_) inflateEnd(&z_);
  }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  // Fills `out`; returns how many bytes there were.
  size_t read(std::span<uint8_t> out) {
    if (zipped_) return inflate_into(out);
    const int64_t left = file_.size() - at_;
    const size_t n = std::min(out.size(), static_cast<size_t>(left));
    file_.read(at_, out.first(n));
    at_ += static_cast<int64_t>(n);
    return n;
  }

 private:
  size_t inflate_into(std::span<uint8_t> out) {
    size_t done = 0;
    while (done < out.size() && !ended_) {
      if (z_.avail_in == 0) refill();
      const size_t room = std::min<size_t>(out.size() - done, size_t{1} << 30);
      z_.next_out = out.data() + done;
      z_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&z_, Z_NO_FLUSH);
      done += room - z_.avail_out;
      ended_ = status == Z_STREAM_END;
      require(ended_ || status == Z_OK, "idx: broken gzip data (", z_.msg ? z_.msg : "cut short",
              ")  ", file_.name());
    }
    return done;
  }

  void refill() {
    const size_t n = std::min(chunk_.size(), static_cast<size_t>(file_.size() - at_));
    require(n > 0, "idx: broken gzip data (cut short)  ", file_.name());
    file_.read(at_, std::span(chunk_).first(n));
    at_ += static_cast<int64_t>(n);
    z_.next_in = chunk_.data();
    z_.avail_in = static_cast<uInt>(n);
  }

  ReadFile file_;
  std::vector<uint8_t> chunk_;
  int64_t at_ = 0;
  bool zipped_ = false, ended_ = false;
  z_stream z_{};
};

Shape read_shape(Input& in, const std::string& path) {
  std::array<uint8_t, 4> magic{};
  require(in.read(magic) == 4, "idx: header is cut short  ", path);
  require(magic[0] == 0 && magic[1] == 0, "idx: must start with two zero bytes (", int{magic[0]},
          " ", int{magic[1]}, ")  ", path);
  require(magic[2] == 8, "idx: elements must be unsigned bytes, type 8 (", int{magic[2]}, ")  ",
          path);
  require(magic[3] >= 1 && magic[3] <= 4, "idx: must have 1 to 4 dims (", int{magic[3]}, ")  ",
          path);
  Shape shape;
  int64_t bytes = 1;
  for (int d = 0; d < magic[3]; ++d) {
    std::array<uint8_t, 4> b{};
    require(in.read(b) == 4, "idx: header is cut short  ", path);
    const int64_t size = int64_t{b[0]} << 24 | b[1] << 16 | b[2] << 8 | b[3];
    require(size > 0, "idx: sizes must be positive (", size, ")  ", path);
    require(!__builtin_mul_overflow(bytes, size, &bytes) && bytes <= data_limit,
            "idx: must have at most ", data_limit, " bytes  ", path);
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

Tensor read_idx(const std::string& path) {
  Input in(path);
  const Shape shape = read_shape(in, path);
  // Grown as the data comes: a short file that claims gigabytes must not get them.
  std::vector<uint8_t> data;
  const size_t total = static_cast<size_t>(shape.numel());
  while (data.size() < total) {
    const size_t before = data.size(), n = std::min<size_t>(total - before, size_t{64} << 20);
    data.resize(before + n);
    const size_t got = in.read(std::span(data).subspan(before));
    require(got == n, "idx: must have ", total, " bytes of data (", before + got, ")  ", path);
  }
  uint8_t extra = 0;
  require(in.read({&extra, 1}) == 0, "idx: must end with the data (", total, " bytes)  ", path);
  return tensor_of(data, shape);
}

bool is_idx(const std::string& path, int64_t rank) {
  std::array<uint8_t, 4> magic{};
  Input in(path);
  return in.read(magic) == 4 && magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && magic[3] == rank;
}

}  // namespace ebb::io
