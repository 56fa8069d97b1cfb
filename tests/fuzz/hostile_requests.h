// Requests as no client sends them: of every route of a server, with values that do not belong
// there, lengths that lie, chunks, and bytes that were changed on the way; and valid requests of
// each protocol whose structure was changed in a few places.
#pragma once

#include <string>
#include <vector>

#include "apps/server/route.h"
#include "fuzz/hostile_random.h"
#include "fuzz/valid_requests.h"

namespace ebb::testing {

class HostileRequests : public HostileRandom {
 public:
  HostileRequests(const std::vector<server::Route>& routes, SmallPicture picture, uint64_t seed)
      : HostileRandom(seed), routes_(routes), picture_(std::move(picture)) {
    kinds_ = {valid_prompts(), valid_of_a1111(picture_), valid_of_others(picture_)};
  }

  // The bytes of one; `last`: it asks to close the connection; `intact`: the next one on the
  // connection can be read behind it, as lengths and bytes of the header are right.
  std::string next(bool last, bool intact) {
    intact_ = intact;
    std::string out = one_in(3) ? of_route(last) : of_valid(last);
    if (!intact && one_in(3)) change(out);
    return out;
  }

  // Asks for the WebSocket of ComfyUI's clients.
  std::string upgrade() {
    std::string out = "GET /ws?clientId=" + std::string(one_in(4) ? "a" : "me") +
                      " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
                      "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    if (one_in(4)) out += "Sec-WebSocket-Extensions: permessage-deflate\r\n";
    if (one_in(20)) change(out);
    return out + "\r\n";
  }

  // Of the WebSocket: messages, fragments and control frames (RFC 6455, section 5.2), some with
  // lengths, masks and flags that are wrong.
  std::string frame() {
    constexpr uint8_t kinds[] = {0, 1, 2, 8, 9, 10};
    uint8_t head = kinds[below(6)];
    if (!one_in(4)) head |= 0x80;  // the last fragment
    if (one_in(30)) head |= static_cast<uint8_t>(below(8) << 4);
    if (one_in(30)) head = static_cast<uint8_t>(below(256));
    std::string data = one_in(3) ? word() : std::string(below(one_in(20) ? 70000 : 130), 'x');
    if ((head & 15) == 8 && one_in(2))
      data.insert(0, {static_cast<char>(below(20)), static_cast<char>(below(256))});
    const uint64_t size = one_in(20) ? number() >> below(64) : data.size();
    const bool masked = !one_in(20);
    const size_t form = one_in(20) ? below(3) : size < 126 ? 0 : size < 65536 ? 1 : 2;
    std::string out = {static_cast<char>(head)};
    const uint64_t small = form == 0 ? size & 127 : form == 1 ? 126 : 127;
    out += static_cast<char>(small | (masked ? 128 : 0));
    for (int i = form == 0 ? 0 : form == 1 ? 2 : 8; i > 0; --i)
      out += static_cast<char>(size >> (8 * (i - 1)) & 255);
    const uint64_t mask = number();
    if (masked)
      for (size_t i = 0; i < 4; ++i) out += static_cast<char>(mask >> (8 * i) & 255);
    for (size_t i = 0; i < data.size(); ++i)
      out += static_cast<char>(data[i] ^ (masked ? static_cast<char>(mask >> (8 * (i % 4))) : 0));
    return out;
  }

 private:
  std::string head(std::string method, const std::string& target, bool last) {
    if (one_in(20)) method = intact_ ? "HEAD" : word();
    std::string out = method + " " + target + (one_in(100) ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
    if (!one_in(100)) out += "Host: " + (one_in(50) ? word() : "localhost") + "\r\n";
    while (!intact_ && one_in(4)) out += one_of(hostile_headers());
    if (one_in(500)) out += std::string(below(20000), 'h') + ": 1\r\n";
    if (last) out += "Connection: close\r\n";
    return out;
  }

  // Lists that nothing of a request changes are long and soon known.
  const server::Route& any_route() {
    for (;;) {
      const server::Route& route = routes_[below(routes_.size())];
      const bool is_list = route.method == "GET" && route.pattern.find("{}") == std::string::npos;
      if (!is_list || one_in(6)) return route;
    }
  }

  std::string of_route(bool last) {
    const server::Route& route = any_route();
    const bool has_body = route.method != "GET" ? !one_in(8) : one_in(30);
    const std::string out = head(route.method, target(route.pattern), last);
    return has_body ? out + framed(body(route.access.accepts)) : out + "\r\n";
  }

  std::string of_valid(bool last) {
    const auto& kind = kinds_[below(kinds_.size())];
    const ValidRequest& v = kind[below(kind.size())];
    const std::string out = head(v.method, target(v.target), last);
    if (!v.form.empty()) return out + framed(form(v.form));
    if (!v.bytes.empty()) return out + framed(changed_picture(), "image/png");
    if (v.body.is_null()) return out + "\r\n";
    Json body = v.body;
    if (!one_in(4)) change(body);
    return out + framed(server::json_text(body));
  }

  std::string target(const std::string& pattern) {
    std::string out = pattern;
    for (size_t at; (at = out.find("{}")) != out.npos;)
      out.replace(at, 2, escaped(one_in(4) ? word() : learnt_word()));
    while (one_in(3)) out += (out.find('?') == out.npos ? "?" : "&") + one_of(hostile_queries());
    if (one_in(3)) out += (out.find('?') == out.npos ? "?" : "&") + ("filename=" + escaped(word()));
    return out;
  }
  // What would end the line.
  std::string escaped(std::string text) {
    if (intact_)
      for (char& c : text)
        if (c == ' ' || c == '\r' || c == '\n' || c == '\0') c = '_';
    return text;
  }

  Json object() {
    Json out = {{"prompt", word()}, {"steps", 2}, {"width", 64}, {"height", 64}};
    switch (below(6)) {
      case 0: out = {{"prompt", "fox"}, {"steps", 1}, {"size", "64x64"}}; break;
      case 1: out["init_images"] = {picture_.base64}; break;
      case 2: out["image"] = picture_.base64; break;
      case 3: out["init"] = picture_.base64, out.erase("width"), out.erase("height"); break;
      case 4:
        out["alwayson_scripts"] = {{"controlnet", {{"args", Json::array({value(), value()})}}}};
        break;
      default: break;
    }
    while (!one_in(3)) out[one_of(hostile_fields())] = value();
    return out;
  }

  std::string body(const std::string& accepts) {
    if (accepts.find("multipart") != accepts.npos && one_in(2)) {
      std::vector<FormPart> parts;
      while (!one_in(5))
        parts.push_back({one_of(hostile_fields()), one_in(2) ? "a.png" : "", word()});
      return form(parts);
    }
    std::string out = server::json_text(object());
    if (one_in(6)) change(out);
    if (one_in(200)) out = std::string(below(40), '[') + out;
    return out;
  }

  // Bytes of a picture with texts, changed.
  std::string changed_picture() {
    std::string out = picture_.bytes;
    if (!one_in(4)) change(out);
    if (one_in(10)) out.resize(below(out.size() + 1));
    return out;
  }

  // Some parts are changed, are gone, or are there twice.
  std::string form(std::vector<FormPart> parts) {
    while (!parts.empty() && one_in(2)) {
      const size_t at = below(parts.size());
      FormPart& p = parts[at];
      switch (below(5)) {
        case 0: p.name = one_of(hostile_fields()); break;
        case 1: p.file = word(); break;
        case 2: p.bytes = p.bytes == picture_.bytes ? changed_picture() : word(); break;
        case 3: parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at)); break;
        default: parts.push_back(FormPart(p)); break;
      }
    }
    std::string out;
    for (const FormPart& p : parts)
      out += "--x\r\nContent-Disposition: form-data; name=\"" + p.name +
             (p.file.empty() ? "" : "\"; filename=\"" + p.file) + "\"\r\n\r\n" + p.bytes + "\r\n";
    out += "--x--\r\n";
    if (one_in(6)) change(out);
    if (!out.starts_with("--x")) out.insert(0, "--x");
    return out;
  }

  std::string framed(const std::string& body, const std::string& type = "application/json") {
    std::string head = "Content-Type: " + type + "\r\n";
    if (body.starts_with("--x") || one_in(30))
      head = "Content-Type: multipart/form-data; boundary=" + (one_in(50) ? word() : "x") + "\r\n";
    if (intact_ || !one_in(6)) {
      const size_t lie = !intact_ && one_in(20) ? below(1000) : 0;
      return head + str("Content-Length: ", body.size() + lie, "\r\n\r\n", body);
    }
    head += "Transfer-Encoding: chunked\r\n\r\n";
    for (size_t at = 0; at < body.size();) {
      const size_t size = std::min(1 + below(4000), body.size() - at);
      char digits[20];
      std::snprintf(digits, sizeof digits, "%zx", one_in(100) ? below(1 << 20) : size);
      head += digits + (one_in(100) ? word() : "") + "\r\n" + body.substr(at, size) + "\r\n";
      at += size;
    }
    return head + "0\r\n" + (one_in(20) ? "A: b\r\n" : "") + "\r\n";
  }
  using HostileRandom::change;

  const std::vector<server::Route>& routes_;
  SmallPicture picture_;
  std::vector<std::vector<ValidRequest>> kinds_;  // each is taken as often
  bool intact_ = true;
};

}  // namespace ebb::testing
