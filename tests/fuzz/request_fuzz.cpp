// Any bytes as a part of a request of the server: a fault, or what its header promises. The first
// byte says which part.
#include <cmath>

#include "apps/server/base64.h"
#include "apps/server/fault.h"
#include "apps/server/guard.h"
#include "apps/server/json_body.h"
#include "apps/server/multipart.h"
#include "base/utf8.h"
#include "pipeline/infotext.h"

namespace {

using namespace ebb::server;

void check(bool ok) {
  if (!ok) __builtin_trap();
}

void target(std::string_view text) {
  Request r;
  r.target = text;
  if (!parse_target(r)) return;
  check(r.path.starts_with('/') && ebb::valid_utf8(r.path));
  for (const auto& [name, value] : r.query) check(value.find('\0') == value.npos);
}

void multipart(std::string_view text) {
  for (const Part& p : read_multipart("multipart/form-data; boundary=x", text)) {
    check(!p.name.empty());
    check(p.body.data() >= text.data() &&
          p.body.data() + p.body.size() <= text.data() + text.size());
  }
  read_multipart(text, "--x\r\n");
}

void coded(std::string_view text) {
  const auto bytes = base64_decoded(text);
  if (!bytes) return;
  const std::string again =
      base64({reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()});
  check(base64_decoded(again) == bytes);
}

void json(std::string_view text) {
  const Json body = read_json(text);
  JsonReader r(body);
  for (const char* name : {"steps", "seed", "a"}) {
    try {
      if (const auto v = r.number(name)) check(std::isfinite(*v));
      if (const auto v = r.integer(name, -1, 1000)) check(*v >= -1 && *v <= 1000);
      r.text(name), r.truth(name), r.array(name), r.object(name);
    } catch (const HttpFault& f) {
      check(f.status == 422);
    }
  }
  check(ebb::valid_utf8(json_text(body)));
}

void infotext(std::string_view text) {
  const ebb::Infotext t = ebb::parse_infotext(text);
  ebb::parse_infotext(ebb::infotext(t));
}

void key(std::string_view text) {
  Guard guard({.key = "secret"});
  Request r;
  r.method = "POST";
  r.headers = {{"host", std::string(text)},
               {"authorization", std::string(text)},
               {"origin", std::string(text)},
               {"content-type", std::string(text)}};
  guard.check(r, nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr void (*parts[])(std::string_view) = {target, multipart, coded, json, infotext, key};
  try {
    parts[data[0] % std::size(parts)](text);
  } catch (const ebb::Error&) {
  }
  return 0;
}
