// What a model's control networks are called in its graph, number k of them, and in errors.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "models/model.h"
#include "nn/ldm_control.h"

namespace ebb {

inline std::string prefix_of(size_t k) { return str("control.", k); }  // of its weights
inline std::string hint_of(size_t k) { return str(nn::hint_image, '.', k); }
inline std::string strength_of(size_t k) { return str(nn::control_strength, '.', k); }
inline std::string mask_of(size_t k) { return str(nn::control_mask, '.', k); }
inline std::string task_of(size_t k) { return str(nn::control_task, '.', k); }

inline const EntryPoint& entry_of(const Component& network) { return network.model->entries.at(0); }
// Throws Error if it has none of this name.
nn::Condition input_of(const Component& network, std::string_view name);

// An image adapter reads what an image encoder makes: the projected image [1,C], or the states
// [any,C] that enter its last layer.
bool reads_features(const Component& network);

// "sdxl", where a preset is the same, or else the model's name.
std::string name_of(const Model& model, const ModelConfig& config);

}  // namespace ebb
