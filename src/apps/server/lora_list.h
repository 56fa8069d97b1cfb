// LoRAs as sd.cpp's clients list them.
#pragma once

#include <string>

#include "apps/server/fault.h"
#include "apps/server/json_body.h"
#include "base/fields.h"

namespace ebb::server {

// [{"path","multiplier","is_high_noise"}] as the setting `lora`; null: none. Throws HttpFault.
inline Json lora_setting(const Json* list) {
  Json out = Json::array();
  if (!list) return out;
  for (const Json& one : *list) {
    if (!one.is_object()) fail_field("lora", "must be a list of objects");
    JsonReader l(one);
    if (l.truth("is_high_noise").value_or(false))
      fail_field("lora", "is_high_noise: ebb has no model of two networks");
    out.push_back(
        str(l.text("path").value_or(""), ':', number_text(l.number("multiplier").value_or(1))));
  }
  return out;
}

}  // namespace ebb::server
