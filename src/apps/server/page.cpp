#include "apps/server/page.h"

#include <zlib.h>

#include <array>
#include <span>

#include "base/hash.h"
#include "ebb/gen/page.inc"

namespace ebb::server {
namespace {

struct PageFile {
  std::string name, type, etag, bytes, compressed;
};

constexpr std::string_view policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string type_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> types = {{
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".json", "application/json"},
      {".png", "image/png"},
      {".ico", "image/x-icon"},
  }};
  for (const auto& [ending, type] : types)
    if (name.ends_with(ending)) return std::string(type);
  return "application/octet-stream";
}

// gzip; "" where that fails.
std::string compressed(const std::string& bytes) {
  z_stream z{};
  constexpr int gzip = 15 + 16, memory = 9;
  if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, gzip, memory, Z_DEFAULT_STRATEGY) != Z_OK)
    return "";
  std::string out(deflateBound(&z, bytes.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  const bool whole = deflate(&z, Z_FINISH) == Z_STREAM_END;
  out.resize(whole ? z.total_out : 0);
  deflateEnd(&z);
  return out;
}

// Arrays have a 0 behind their bytes, as some files may be empty.
[[maybe_unused]] PageFile file_of(std::string name, std::span<const unsigned char> bytes) {
  PageFile out{.name = std::move(name)};
  out.type = type_of(out.name);
  out.bytes.assign(bytes.begin(), bytes.end() - 1);
  out.compressed = compressed(out.bytes);
  out.etag = str('"', fnv1a(out.bytes), '"');
  return out;
}

const std::vector<PageFile>& page_files() {
  static const std::vector<PageFile> files = {
#define E(name, array) file_of(name, array),
      EBB_PAGE_FILES(E)
#undef E
  };
  return files;
}

Reply page_reply(const PageFile& f, const Request& r) {
  Reply out{.type = f.type};
  out.headers = {{"Content-Security-Policy", std::string(policy)},
                 {"Cross-Origin-Opener-Policy", "same-origin"},
                 {"Cache-Control", "no-cache"},
                 {"Vary", "Accept-Encoding"},
                 {"ETag", f.etag}};
  if (r.header("if-none-match") == f.etag) {
    out.status = 304;
    return out;
  }
  const bool zipped =
      !f.compressed.empty() && r.header("accept-encoding").find("gzip") != std::string_view::npos;
  if (zipped) out.headers.emplace_back("Content-Encoding", "gzip");
  out.body = zipped ? f.compressed : f.bytes;
  return out;
}

Route page_route(std::string pattern, Handler handler) {
  return {.method = "GET",
          .pattern = std::move(pattern),
          .handler = std::move(handler),
          .on = On::io,
          .access = {.open = true, .is_static = true},
          .fault = render_fault};
}

// "/training", to which "/training/" leads: what a page names lies beside it.
void add_page(std::vector<Route>& out, const std::string& name, const Handler& send) {
  out.push_back(page_route("/" + name, send));
  out.push_back(page_route("/" + name + "/", [name](const Call& c) {
    c.reply(Reply{.status = 308, .type = "text/plain", .headers = {{"Location", "../" + name}}});
  }));
}

}  // namespace

std::vector<Route> page_routes() {
  std::vector<Route> out;
  bool has_index = false;
  for (const PageFile& f : page_files()) {
    const auto send = [&f](const Call& c) { c.reply(page_reply(f, *c.request)); };
    has_index |= f.name == "index.html";
    if (f.name == "index.html")
      out.push_back(page_route("/", send));
    else if (f.name.ends_with(".html"))
      add_page(out, f.name.substr(0, f.name.rfind('.')), send);
    out.push_back(page_route("/" + f.name, send));
  }
  if (!has_index)
    out.push_back(page_route("/", [](const Call& c) {
      if (c.request->method == "HEAD") return c.reply(Reply{});  // a ping of some clients
      throw HttpFault(404, "not_found",
                      "this program was built without its web page; the protocols are there");
    }));
  return out;
}

}  // namespace ebb::server
