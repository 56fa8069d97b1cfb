// OptionalText: a field that fields_text leaves out while it is empty. Attributes that an op got
// later keep the texts of its earlier uses so, which are keys of recorded measurements.
#pragma once

#include "base/fields.h"

namespace ebb {

class OptionalText : public TextValue {
 public:
  virtual bool empty() const = 0;
};

}  // namespace ebb
