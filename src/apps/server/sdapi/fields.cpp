// Fields of txt2img and img2img with their defaults, which answers echo.
#include "apps/server/sdapi/request.h"

namespace ebb::server::sdapi {
namespace {

Json common() {
  return {{"prompt", ""},
          {"negative_prompt", ""},
          {"styles", nullptr},
          {"seed", -1},
          {"subseed", -1},
          {"subseed_strength", 0.0},
          {"seed_resize_from_h", -1},
          {"seed_resize_from_w", -1},
          {"sampler_name", nullptr},
          {"scheduler", nullptr},
          {"batch_size", 1},
          {"n_iter", 1},
          {"steps", 50},
          {"cfg_scale", 7.0},
          {"distilled_cfg_scale", 3.5},
          {"width", 512},
          {"height", 512},
          {"restore_faces", nullptr},
          {"tiling", nullptr},
          {"do_not_save_samples", false},
          {"do_not_save_grid", false},
          {"eta", nullptr},
          {"denoising_strength", 0.75},
          {"s_min_uncond", nullptr},
          {"s_churn", nullptr},
          {"s_tmax", nullptr},
          {"s_tmin", nullptr},
          {"s_noise", nullptr},
          {"override_settings", nullptr},
          {"override_settings_restore_afterwards", true},
          {"refiner_checkpoint", nullptr},
          {"refiner_switch_at", nullptr},
          {"disable_extra_networks", false},
          {"comments", nullptr},
          {"sampler_index", "Euler"},
          {"script_name", nullptr},
          {"script_args", Json::array()},
          {"send_images", true},
          {"save_images", false},
          {"alwayson_scripts", Json::object()},
          {"force_task_id", nullptr},
          {"infotext", nullptr},
          {"clip_skip", nullptr},
          {"token_merging_ratio", nullptr},
          {"token_merging_ratio_hr", nullptr}};
}

// Of Easy Diffusion, sd.cpp and koboldcpp.
Json of_other_programs() {
  return {{"lora", nullptr},
          {"lora_paths", nullptr},
          {"lora_alphas", nullptr},
          {"ref_images", nullptr},
          {"extra_images", nullptr},
          {"controlnet_lllite", nullptr},
          {"ip_adapter", nullptr},
          {"vae_interposer", nullptr},
          {"latent_interposer", nullptr},
          {"circular_x", nullptr},
          {"circular_y", nullptr},
          {"distilled_guidance", nullptr},
          {"shifted_timestep", nullptr},
          {"flow_shift", nullptr},
          {"send_as_refimg", nullptr},
          {"cache_mode", nullptr}};
}

Json of_txt2img() {
  Json out = common();
  out.update(of_other_programs());
  out.update({{"enable_hr", false},
              {"firstphase_width", 0},
              {"firstphase_height", 0},
              {"hr_scale", 2.0},
              {"hr_upscaler", nullptr},
              {"hr_second_pass_steps", 0},
              {"hr_resize_x", 0},
              {"hr_resize_y", 0},
              {"hr_checkpoint_name", nullptr},
              {"hr_additional_modules", nullptr},
              {"hr_sampler_name", nullptr},
              {"hr_scheduler", nullptr},
              {"hr_prompt", ""},
              {"hr_negative_prompt", ""},
              {"hr_cfg", 1.0},
              {"hr_distilled_cfg", 3.5}});
  return out;
}

Json of_img2img() {
  Json out = common();
  out.update(of_other_programs());
  out.update({{"init_images", nullptr},
              {"resize_mode", 0},
              {"image_cfg_scale", nullptr},
              {"mask", nullptr},
              {"mask_blur_x", 4},
              {"mask_blur_y", 4},
              {"mask_blur", nullptr},
              {"mask_round", true},
              {"inpainting_fill", 0},
              {"inpaint_full_res", true},
              {"inpaint_full_res_padding", 0},
              {"inpainting_mask_invert", 0},
              {"initial_noise_multiplier", nullptr},
              {"latent_mask", nullptr},
              {"include_init_images", false}});
  return out;
}

}  // namespace

const Json& default_fields(Task task) {
  static const Json txt2img = of_txt2img(), img2img = of_img2img();
  return task == Task::txt2img ? txt2img : img2img;
}

}  // namespace ebb::server::sdapi
