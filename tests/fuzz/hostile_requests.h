// Requests as no client sends them: of every route of a server, with values that do not belong
// there, lengths that lie, chunks, and bytes that were changed on the way.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "apps/server/route.h"

namespace ebb::testing {

class HostileRequests {
 public:
  using Json = nlohmann::json;
  // `picture`: a small one, in base64.
  HostileRequests(const std::vector<server::Route>& routes, std::string picture, uint64_t seed)
      : routes_(routes), picture_(std::move(picture)), random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool one_in(size_t n) { return below(n) == 0; }

  // The bytes of one; `last`: it asks to close the connection.
  std::string next(bool last) {
    const server::Route& route = routes_[below(routes_.size())];
    std::string out = one_in(20) ? one_of(words_) : route.method;
    const bool has_body = route.method != "GET" ? !one_in(8) : one_in(30);
    out += " " + target(route.pattern) + (one_in(40) ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
    if (!one_in(100)) out += "Host: " + (one_in(50) ? one_of(words_) : "localhost") + "\r\n";
    while (one_in(4)) out += one_of(headers_);
    if (one_in(500)) out += std::string(below(20000), 'h') + ": 1\r\n";
    if (last) out += "Connection: close\r\n";
    out += has_body ? framed(body(route.access.accepts)) : "\r\n";
    if (one_in(4)) change(out);
    return out;
  }

 private:
  const std::string& one_of(const std::vector<std::string>& from) {
    return from[below(from.size())];
  }

  std::string target(const std::string& pattern) {
    std::string out = pattern;
    for (size_t at; (at = out.find("{}")) != out.npos;) out.replace(at, 2, one_of(words_));
    while (one_in(3)) out += (out.find('?') == out.npos ? "?" : "&") + one_of(queries_);
    return out;
  }

  Json value() {
    switch (below(14)) {
      case 0: return nullptr;
      case 1: return one_in(2);
      case 2: return Json::array({value(), 2, "x"});
      case 3: return {{"model", value()}, {"image", picture_}, {one_of(words_), value()}};
      case 4: return 1e308;
      case 5: return picture_;
      case 6: return std::string(below(one_in(50) ? 70000 : 200), 'a');
      case 7: return static_cast<int64_t>(random_());
      case 8: return random_();
      case 9: return "64";
      case 10: return 0.5;
      case 11: return static_cast<int64_t>(below(20)) - 2;
      default: return one_of(words_);
    }
  }

  Json object() {
    Json out = {{"prompt", one_of(words_)}, {"steps", 2}, {"width", 64}, {"height", 64}};
    switch (below(6)) {
      case 0: out = {{"prompt", "fox"}, {"steps", 1}, {"size", "64x64"}}; break;
      case 1: out["init_images"] = {picture_}; break;
      case 2: out["image"] = picture_; break;
      case 3: out["init"] = picture_, out.erase("width"), out.erase("height"); break;
      case 4:
        out["alwayson_scripts"] = {{"controlnet", {{"args", Json::array({value(), value()})}}}};
        break;
      default: break;
    }
    while (!one_in(3)) out[one_of(fields_)] = value();
    return out;
  }

  std::string body(const std::string& accepts) {
    if (accepts.find("multipart") != accepts.npos && one_in(2)) {
      std::string out;
      while (!one_in(5))
        out += "--x\r\nContent-Disposition: form-data; name=\"" + one_of(fields_) +
               (one_in(2) ? "\"; filename=\"a.png" : "") + "\"\r\n\r\n" + one_of(words_) + "\r\n";
      return out + "--x--";
    }
    std::string out = server::json_text(object());
    if (one_in(6)) change(out);
    if (one_in(200)) out = std::string(below(40), '[') + out;
    return out;
  }

  std::string framed(const std::string& body) {
    std::string head = one_in(10) ? "Content-Type: multipart/form-data; boundary=x\r\n"
                                  : "Content-Type: application/json\r\n";
    if (body.starts_with("--x")) head = "Content-Type: multipart/form-data; boundary=x\r\n";
    if (!one_in(6)) {
      const size_t lie = one_in(40) ? below(1000) : 0;
      return head + str("Content-Length: ", body.size() + lie, "\r\n\r\n", body);
    }
    head += "Transfer-Encoding: chunked\r\n\r\n";
    for (size_t at = 0; at < body.size();) {
      const size_t size = std::min(1 + below(4000), body.size() - at);
      char digits[20];
      std::snprintf(digits, sizeof digits, "%zx", one_in(100) ? below(1 << 20) : size);
      head +=
          digits + (one_in(100) ? one_of(words_) : "") + "\r\n" + body.substr(at, size) + "\r\n";
      at += size;
    }
    return head + "0\r\n" + (one_in(20) ? "A: b\r\n" : "") + "\r\n";
  }

  // Some bytes are others, are gone, or are there twice.
  void change(std::string& text) {
    for (size_t i = 0; i <= below(4) && !text.empty(); ++i) {
      const size_t at = below(text.size()), size = std::min(1 + below(16), text.size() - at);
      switch (below(4)) {
        case 0: text[at] = static_cast<char>(below(256)); break;
        case 1: text.erase(at, size); break;
        case 2: text.insert(at, text.substr(at, size)); break;
        default: text.insert(at, one_of(words_)); break;
      }
    }
  }

  const std::vector<server::Route>& routes_;
  std::string picture_;
  std::mt19937_64 random_;
  std::vector<std::string> words_ = {"",
                                     "a fox",
                                     "GET",
                                     "POST",
                                     "..",
                                     "%2e%2e%2f",
                                     "%00",
                                     "/etc/passwd",
                                     "\xff\xfe",
                                     "{",
                                     "]",
                                     "\"",
                                     "\r\n",
                                     ";x=y",
                                     "fail",
                                     "<lora:x:1>",
                                     "(a:1e9)",
                                     "512x512",
                                     "auto",
                                     "-1",
                                     "1e999",
                                     "NaN",
                                     "Euler",
                                     "Karras",
                                     "lanczos:2",
                                     "id:20260101-000000-1-12345678",
                                     "data:image/png;base64,AA",
                                     "http://169.254.169.254/",
                                     "evil.example:7860",
                                     "ffffffffffffffff",
                                     "\\u0000",
                                     "true"};
  std::vector<std::string> queries_ = {
      "before=x", "limit=-1", "limit=99999999999",    "q=%20fox", "since=0",
      "since=x",  "n=1",      "skip_current_image=1", "%zz"};
  std::vector<std::string> headers_ = {"Origin: http://localhost\r\n",
                                       "Origin: null\r\n",
                                       "Sec-Fetch-Site: cross-site\r\n",
                                       "Authorization: Basic eDp5\r\n",
                                       "Expect: 100-continue\r\n",
                                       "Last-Event-ID: 5\r\n",
                                       "Content-Length: 5\r\n",
                                       "Transfer-Encoding: chunked\r\n",
                                       "Content-Encoding: gzip\r\n",
                                       "Accept: */*\r\n",
                                       "Connection: upgrade\r\nUpgrade: websocket\r\n",
                                       " folded\r\n",
                                       ": x\r\n"};
  std::vector<std::string> fields_ = {"prompt",
                                      "negative",
                                      "negative_prompt",
                                      "steps",
                                      "width",
                                      "height",
                                      "size",
                                      "n",
                                      "batch_size",
                                      "n_iter",
                                      "seed",
                                      "subseed",
                                      "subseed_strength",
                                      "sampler",
                                      "sampler_name",
                                      "sampler_index",
                                      "scheduler",
                                      "schedule",
                                      "cfg_scale",
                                      "guidance",
                                      "denoising_strength",
                                      "strength",
                                      "mask",
                                      "init",
                                      "init_images",
                                      "image",
                                      "enable_hr",
                                      "hr_scale",
                                      "hr_upscaler",
                                      "hires",
                                      "tiling",
                                      "outpaint",
                                      "upscale",
                                      "kind",
                                      "lora",
                                      "model",
                                      "vae",
                                      "clip_skip",
                                      "override_settings",
                                      "samples_format",
                                      "sd_model_checkpoint",
                                      "CLIP_stop_at_last_layers",
                                      "force_task_id",
                                      "infotext",
                                      "alwayson_scripts",
                                      "script_name",
                                      "inpainting_fill",
                                      "mask_blur",
                                      "resize_mode",
                                      "upscaling_resize",
                                      "upscaler_1",
                                      "imageList",
                                      "id_task",
                                      "id_live_preview",
                                      "response_format",
                                      "quality",
                                      "output_format",
                                      "stream",
                                      "partial_images",
                                      "ebb",
                                      "position",
                                      "text",
                                      "sample_params",
                                      "batch_count",
                                      "controlnet_module",
                                      "controlnet_input_images",
                                      "dialect"};
};

}  // namespace ebb::testing
