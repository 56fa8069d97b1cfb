#include "apps/cli/picture_output.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/names.h"
#include "core/host_memory.h"
#include "io/file.h"
#include "io/image.h"
#include "io/tensor_file.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

std::string small_extension(const std::string& path) {
  std::string out = fs::path(path).extension().string();
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Whether a run lays such files down itself: pictures, or numbers with ebb's settings.
bool is_of_runs(const std::string& file, Output kind) {
  try {
    if (kind == Output::grid) return io::read_picture_text(file), true;
    if (kind == Output::npy) return false;  // which does not say who wrote it
    const io::TensorFile there = io::TensorFile::open(file);
    const auto software = there.metadata().find("Software");
    return software != there.metadata().end() && software->second.starts_with("ebb ") &&
           there.entries().size() == 1 &&
           (there.entries()[0].name == "latents" || there.entries()[0].name == "images");
  } catch (const Error&) {
    return false;
  }
}

// The file of one image in a folder.
std::string numbered(const std::string& folder, int64_t i, const std::string& format) {
  char name[32];
  std::snprintf(name, sizeof name, "%05lld.%s", static_cast<long long>(i), format.c_str());
  return (fs::path(folder) / name).string();
}

// Of a run that would replace a picture.
constexpr std::string_view no_picture = "is no picture";

constexpr int64_t grid_gap = 2;

// As many as rows, but for sides that would be longer than the file may have.
int64_t columns_of(int64_t count, const PictureStyle& style, const Shape& picture,
                   io::PictureFormat format) {
  if (style.columns > 0) return style.columns;
  const auto most = [&](int64_t pixels) {  // pictures that are so long, along a side
    const int64_t side = std::min(io::side_limit(format), io::ImageLimits{}.side);
    return std::max<int64_t>((side - grid_gap) / (pixels + grid_gap), 1);
  };
  const auto square = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const int64_t rows = most(picture[0]), least = (count + rows - 1) / rows;
  const int64_t columns = most(picture[1]);
  return least <= columns ? std::clamp(square, least, columns) : square;
}

// Whether ebb reads such a picture again, as it does before another run replaces it.
bool is_readable(const Shape& whole) {
  const io::ImageLimits limits;
  return std::max(whole[0], whole[1]) <= limits.side && whole[0] * whole[1] <= limits.pixels;
}

std::string size_text(const Shape& s) { return str(s[1], 'x', s[0]); }

}  // namespace

Output output_of(const std::string& out, std::string_view command) {
  constexpr std::string_view what = "a .png, .jpg, .webp, .safetensors or .npy file or a folder";
  const bool names = !out.empty() && out != "-";  // nothing is written to standard output
  require(names, command, ": --out must name ", what, " (got '", out, "')");
  const std::string extension = small_extension(out);
  for (const char* other : {".gif", ".bmp", ".tif", ".tiff"})
    require(extension != other, command, ": --out must be ", what, "  ", out);
  if (io::picture_format(out)) return Output::grid;
  if (extension == ".safetensors") return Output::safetensors;
  if (extension == ".npy") return Output::npy;
  const std::vector<std::string> known{".png", ".jpg", ".jpeg", ".webp", ".safetensors", ".npy"};
  const std::string near = extension.empty() ? "" : nearest_name(extension, known);
  require(near.empty() || fs::is_directory(out), command, ": --out must be ", what,
          " (did you mean ", out.substr(0, out.size() - extension.size()), near, ", or the folder ",
          out, "/?)");
  std::error_code ignored;
  require(!fs::exists(out, ignored) || fs::is_directory(out, ignored), command, ": --out must be ",
          what, ", but a file of another kind is there  ", out);
  return Output::folder;
}

bool is_numbered(const std::string& file) {
  constexpr size_t least = 5, most = 12;  // digits
  const std::string stem = fs::path(file).stem().string();
  return stem.size() >= least && stem.size() <= most &&
         stem.find_first_not_of("0123456789") == stem.npos && io::picture_format(file);
}

int64_t next_number(const std::string& out) {
  std::error_code none;
  int64_t next = 0;
  for (const auto& entry : fs::directory_iterator(out, none))
    if (is_numbered(entry.path().string()))
      next = std::max(next, int64_t{std::stoll(entry.path().stem().string())} + 1);
  return next;
}

int64_t first_number(const std::string& out) {
  const int64_t first = next_number(out);
  if (first > 0)
    std::fprintf(stderr, "note: the folder has pictures; new ones begin at %05lld  %s\n",
                 static_cast<long long>(first), out.c_str());
  return first;
}

void check_output_path(const std::string& out, std::string_view command, bool overwrite) {
  const Output kind = output_of(out, command);
  const std::string flag = str(command, ": --out");
  if (kind == Output::folder) return io::check_can_fill(out, flag);
  constexpr std::string_view rules[] = {no_picture, "", "is no latents or images by ebb",
                                        "does not say who wrote it"};
  check_replaced(out, flag, overwrite, rules[static_cast<size_t>(kind)],
                 [kind](const std::string& file) { return is_of_runs(file, kind); });
}

namespace {

io::Existing existing_of(const std::string& file, bool overwrite,
                         const std::function<bool(const std::string&)>& own) {
  std::error_code ignored;
  return overwrite || (fs::is_regular_file(file, ignored) && own(file)) ? io::Existing::replaced
                                                                        : io::Existing::kept;
}

}  // namespace

io::Existing existing_at(const std::string& out, bool overwrite) {
  return existing_of(out, overwrite, [](const std::string& file) {
    return is_of_runs(file, output_of(file, "out"));
  });
}

void check_replaced(const std::string& file, std::string_view flag, bool overwrite,
                    std::string_view rule, const std::function<bool(const std::string&)>& own) {
  io::check_can_write(file, flag);
  std::error_code ignored;
  require(overwrite || !fs::exists(file, ignored) || own(file), flag, " would replace a file that ",
          rule, "; another name keeps it, --overwrite replaces it  ", file);
}

void write_text(const std::string& file, std::string_view text, std::string_view flag,
                bool overwrite, const std::function<bool(const std::string&)>& own) {
  io::write_whole_file(file, text, flag, existing_of(file, overwrite, own));
}

void check_replaced_picture(const std::string& file, std::string_view flag, bool overwrite) {
  check_replaced(file, flag, overwrite, no_picture,
                 [](const std::string& there) { return is_of_runs(there, Output::grid); });
}

std::optional<ImageSize> parse_image_size(const std::string& text) {
  if (small_letters(text) == "auto") return ImageSize{};
  const size_t x = std::min(text.find('x'), text.find('X'));
  const auto pixels = [](const std::string& digits) {  // 0: it is no number of them
    const bool number = !digits.empty() && digits.size() < 10 &&
                        digits.find_first_not_of("0123456789") == digits.npos;
    return number ? int64_t{std::stoll(digits)} : 0;
  };
  const int64_t width = pixels(text.substr(0, x));
  const int64_t height = x == text.npos ? width : pixels(text.substr(x + 1));
  if (width == 0 || height == 0) return {};
  return ImageSize{.height = height, .width = width};
}

std::string image_size_rule(int64_t longest) {
  return str("must be auto, N or WIDTHxHEIGHT in pixels, 1 to ", longest, " a side");
}

ImageSize image_size(const std::string& text, std::string_view command) {
  const std::optional<ImageSize> size = parse_image_size(text);
  require(size.has_value(), command, ": --size ", image_size_rule(), " (got '", text, "')");
  return *size;
}

void check_picture_size(const std::string& out, std::string_view command, const ImageSize& size,
                        int64_t count, const PictureStyle& style) {
  const auto own = io::picture_format(out);
  const auto format = own ? own : io::picture_format("." + style.format);
  const bool grid = own && count > 1;
  if (!format) return;
  const Shape one{size.height, size.width};
  const Shape whole =
      grid ? io::grid_shape(one, count, columns_of(count, style, one, *format), grid_gap) : one;
  const int64_t side = std::max(whole[0], whole[1]);
  const auto holds = [](io::PictureFormat f, int64_t n) { return n <= io::side_limit(f); };
  const std::string what =
      grid ? str("a grid of ", count, " pictures of ", size_text(one), " is ", size_text(whole))
           : str("the picture is ", size_text(whole));
  std::string help;
  const auto add = [&](const std::string& way) { help += (help.empty() ? "" : " or ") + way; };
  const bool readable = !grid || is_readable(whole);
  if (!holds(*format, side) && holds(io::PictureFormat::png, side) && readable)
    add(own ? "a .png file as --out" : "--format png");
  if (grid && holds(*format, std::max(one[0], one[1]))) add("a folder as --out");
  require(holds(*format, side), command, ": --out: ", what, ", and ", io::name_of(*format),
          " holds ", io::side_limit(*format), " pixels a side; ",
          help.empty() ? "smaller pictures fit" : help + " holds it", "  ", out);
  const io::ImageLimits limits;
  require(readable, command, ": --out: ", what, ", and ebb reads at most ", limits.side,
          " pixels a side and ", limits.pixels, " in all; a folder as --out holds it  ", out);
  // the pictures and the grid of them
  const int64_t bytes = whole[0] * whole[1] * 3, memory = free_host_memory();
  require(!grid || bytes <= memory / 2, command, ": --out: ", what, ", for which the memory of ",
          2 * bytes / 1'000'000, " MB is needed, and ", memory / 1'000'000,
          " MB are free; a folder as --out needs less  ", out);
}

bool grid_fits(const std::string& out, const ImageSize& size, int64_t count, int64_t columns) {
  const Shape whole = io::grid_shape({size.height, size.width}, count, columns, grid_gap);
  const auto format = io::picture_format(out);
  return format && std::max(whole[0], whole[1]) <= io::side_limit(*format) && is_readable(whole);
}

std::vector<std::string> write_pictures(const std::string& out, const std::vector<Tensor>& images,
                                        const PictureText& text, const PictureStyle& style) {
  const auto n = static_cast<int64_t>(images.size());
  const int quality = static_cast<int>(style.quality);
  if (const auto format = io::picture_format(out)) {
    const Tensor whole =
        n == 1 ? images[0]
               : io::image_grid(images, columns_of(n, style, images[0].shape(), *format), grid_gap);
    io::write_picture(out, whole, text(0),
                      {.quality = quality, .existing = existing_at(out, style.overwrite)});
    return {out};
  }
  std::vector<std::string> files;
  int64_t number = style.first_image;
  for (int64_t i = 0; i < n; ++i) {
    std::string& file = files.emplace_back();
    do file = numbered(out, number++, style.format);
    while (!io::write_new_picture(file, images[static_cast<size_t>(i)], text(i), quality));
  }
  return files;
}

std::string partial_file(const std::string& out) {
  std::error_code ignored;
  const fs::path path(out);
  std::string file = out;
  for (int64_t i = 1; fs::exists(file, ignored); ++i)
    file = (path.parent_path() / str(path.stem().string(), "-partial", i == 1 ? "" : str("-", i),
                                     path.extension().string()))
               .string();
  return file;
}

}  // namespace ebb::cli
