// Words that hostile requests are made of: values, parameters of targets, headers, names of fields.
#pragma once

#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace ebb::testing {

inline const std::vector<std::string>& hostile_words() {
  static const std::vector<std::string> all = {"",
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
                                               "true",
                                               "box.safetensors",
                                               "me",
                                               "3",
                                               "a.png",
                                               "dpmpp_2m",
                                               "Infinity",
                                               "1e-320",
                                               "18446744073709551616",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "a:b:0.5]",
                                               "[a|b|c]",
                                               "((((((((a",
                                               "AND",
                                               "BREAK",
                                               "<lora:x:1:1:lbw=1,2>",
                                               "\xed\xa0\x80",
                                               "lineart",
                                               "canny",
                                               "latent:2:7:0.5"};
  return all;
}

inline const std::vector<std::string>& hostile_queries() {
  static const std::vector<std::string> all = {"before=x",
                                               "limit=-1",
                                               "limit=99999999999",
                                               "q=%20fox",
                                               "since=0",
                                               "since=x",
                                               "n=1",
                                               "skip_current_image=1",
                                               "%zz",
                                               "clientId=me",
                                               "clientId=a%00b",
                                               "filename=a.png&type=input",
                                               "filename=../../etc/passwd",
                                               "type=temp&subfolder=x",
                                               "step=1",
                                               "step=-1",
                                               "step=99999999999999999999",
                                               "n=%ff"};
  return all;
}

inline const std::vector<std::string>& hostile_headers() {
  static const std::vector<std::string> all = {"Origin: http://localhost\r\n",
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
  return all;
}

inline const std::vector<std::string>& hostile_fields() {
  static const std::vector<std::string> all = [] {
    std::istringstream names(
        "prompt negative negative_prompt steps width height size n batch_size n_iter seed "
        "subseed subseed_strength sampler sampler_name sampler_index scheduler schedule "
        "cfg_scale guidance denoising_strength strength mask init init_images image enable_hr "
        "hr_scale hr_upscaler hires tiling outpaint upscale kind lora model vae clip_skip "
        "override_settings samples_format sd_model_checkpoint CLIP_stop_at_last_layers "
        "force_task_id infotext alwayson_scripts script_name inpainting_fill mask_blur "
        "resize_mode upscaling_resize upscaler_1 imageList id_task id_live_preview "
        "response_format quality output_format stream partial_images ebb position text "
        "sample_params batch_count controlnet_module controlnet_input_images dialect class_type "
        "inputs client_id prompt_id extra_data ckpt_name lora_name clip samples images pixels "
        "latent_image positive noise_seed start_at_step end_at_step denoise cfg upscale_method "
        "crop grow_mask_by stop_at_clip_layer delete clear image[] overwrite subfolder");
    return std::vector<std::string>(std::istream_iterator<std::string>(names), {});
  }();
  return all;
}

}  // namespace ebb::testing
