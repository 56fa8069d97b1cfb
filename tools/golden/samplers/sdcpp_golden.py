"""Golden samplers and schedules of stable-diffusion.cpp: samplers_sdcpp.json, schedules_sdcpp.json.

    python sdcpp_golden.py --sdcpp CHECKOUT --commit HASH --out tests/golden/samplers

CHECKOUT is one of leejet/stable-diffusion.cpp, outside this repository. sdcpp_harness.cpp is
compiled against its headers in a temporary folder, twice: as they are, and with double in place of
float. What they include of ggml is replaced by the few declarations that sampling needs.
"""

import argparse
import json
import pathlib
import re
import subprocess
import tempfile

import files
import toy

STEPS = (1, 2, 3, 5, 6, 10, 20, 30, 35, 50, 150)
METHODS = dict(
    euler="EULER", euler_ancestral="EULER_A", heun="HEUN", dpm_2="DPM2",
    dpmpp_2s_ancestral="DPMPP2S_A", dpmpp_2m="DPMPP2M", dpmpp_2m_v2="DPMPP2Mv2", ipndm="IPNDM",
    ipndm_v="IPNDM_V", lcm="LCM", ddim_trailing="DDIM_TRAILING", tcd="TCD",
    res_multistep="RES_MULTISTEP", res_2s="RES_2S", er_sde="ER_SDE", euler_cfg_pp="EULER_CFG_PP",
    euler_ancestral_cfg_pp="EULER_A_CFG_PP", gradient_estimation="EULER_GE",
    dpmpp_2m_sde="DPMPP2M_SDE", lms="LMS")
WITH_ETA = ("euler_ancestral", "dpmpp_2s_ancestral", "ddim_trailing", "res_multistep", "res_2s",
            "er_sde", "euler_ancestral_cfg_pp", "gradient_estimation", "dpmpp_2m_sde", "tcd")
MORE = {
    "tcd": [dict(eta=0.3)],
    "lcm": [dict(eta=0.0, noise_clip_std=0.5),
            dict(eta=0.0, noise_scale_start=1.0, noise_scale_end=0.5)],
    "gradient_estimation": [dict(eta=0.0, gamma=1.5)],
    "lms": [dict(eta=0.0, lms_max_order=2), dict(eta=0.0, lms_max_order=3)],
}
SCHEDULERS = dict(
    discrete="DISCRETE", karras="KARRAS", exponential="EXPONENTIAL", ays="AYS", gits="GITS",
    sgm_uniform="SGM_UNIFORM", simple="SIMPLE", smoothstep="SMOOTHSTEP", kl_optimal="KL_OPTIMAL",
    lcm="LCM", bong_tangent="BONG_TANGENT", ltx2="LTX2", logit_normal="LOGIT_NORMAL",
    flux2="FLUX2", flux="FLUX", beta="BETA")
STUBS = {
    "ggml-backend.h": """#pragma once
#include <cassert>
using ggml_backend_t = struct ggml_backend*;
using ggml_backend_dev_t = struct ggml_backend_device*;
using ggml_backend_buffer_type_t = struct ggml_backend_buffer_type*;
enum ggml_type { GGML_TYPE_F32 };
#define GGML_ASSERT assert
#define SD_UNUSED(x) (void)(x)
""",
    "core/ggml_extend.hpp": """#pragma once
#include "stable-diffusion.h"
#include "model.h"
#include "core/util.h"
#define LOG_INFO(...)
#define LOG_DEBUG(...)
#define LOG_WARN(...)
#define LOG_ERROR(...)
""",
}


def enumerators(header, suffix):
    """Values by name of the enumeration whose names end in `suffix`."""
    names = re.findall(rf"^\s*(\w+){suffix},", header.read_text(), re.MULTILINE)
    return {name: index for index, name in enumerate(names)}


def in_double(text):
    text = re.sub(r"\bfloat\b", "double", text)
    text = re.sub(r"((?<![\w.])(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?)f\b", r"\1", text)
    return re.sub(r"\b(atan|fabs|pow|sqrt|exp|log)f\b", r"\1", text)


class Harness:
    """The program, in both precisions, in a temporary folder."""

    def __init__(self, checkout, folder):
        source = checkout / "src"
        stubs = folder / "stubs"
        for name, text in STUBS.items():
            (stubs / name).parent.mkdir(parents=True, exist_ok=True)
            (stubs / name).write_text(text)
        # The versions of networks, without what needs ggml.
        kept = [line for line in (source / "model.h").read_text().splitlines()
                if not line.startswith("#include") and "TensorStorage" not in line
                and "TensorTypeRules" not in line]
        (stubs / "model.h").write_text("#include <string>\n" + "\n".join(kept) + "\n")
        double = folder / "double"
        for name in ("core", "runtime"):
            (double / name).mkdir(parents=True)
            for path in (source / name).glob("*.h*"):
                (double / name / path.name).write_text(in_double(path.read_text()))
        self.programs = {}
        include = checkout / "include"
        for name, headers, define in (("f32", source, []), ("f64", double, ["-DAS_DOUBLE"])):
            self.programs[name] = folder / name
            subprocess.run(
                ["g++", "-std=c++17", "-O2", "-w", *define, f"-I{stubs}", f"-I{headers}",
                 f"-I{include}", "-o", self.programs[name],
                 pathlib.Path(__file__).with_name("sdcpp_harness.cpp")], check=True)
        header = include / "stable-diffusion.h"
        self.methods = enumerators(header, "_SAMPLE_METHOD")
        self.schedulers = enumerators(header, "_SCHEDULER")

    def ask(self, program, lines):
        run = subprocess.run([self.programs[program]], input="\n".join(lines) + "\n",
                             capture_output=True, text=True, check=True)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def ask_one(self, program, line):
        try:
            return self.ask(program, [line])[0]
        except subprocess.CalledProcessError:
            return {"error": "the program crashes"}


def options_of(name):
    return [dict(eta=eta) for eta in ((0.0, 0.5, 1.0) if name in WITH_ETA else (0.0,))] + MORE.get(
        name, [])


def runs():
    """What describes each sampler case, and whether it lists where the denoiser was asked."""
    for name in METHODS:
        for index, options in enumerate(options_of(name)):
            for grid in toy.GRIDS:
                space = "ve" if grid.startswith("ve") else "flow"
                short = grid in ("ve6", "flow6", "ve20", "flow20")
                skipped = grid == "ve6_discard" or (name == "tcd" and space == "flow")
                if not skipped and (short or index == 0):
                    case = dict(sampler=name, options=options, space=space, grid=grid)
                    yield case, grid in ("ve6", "flow6") and index == 0


def samplers(harness):
    cases = list(runs())
    lines = []
    for case, _ in cases:
        extra = ",".join(f"{k}={v}" for k, v in case["options"].items() if k != "eta") or "-"
        method = harness.methods[METHODS[case["sampler"]]]
        sigmas, start = toy.GRIDS[case["grid"]], toy.STARTS[case["space"]]
        lines.append(" ".join(map(str, (
            "sample", method, int(case["space"] == "flow"), case["options"]["eta"], extra,
            len(sigmas), *map(repr, sigmas), *map(repr, start)))))
    for (case, traced), exact, rounded in zip(
            cases, harness.ask("f64", lines), harness.ask("f32", lines)):
        if "error" in exact or not exact["x"]:
            yield {**case, "error": exact.get("error", "empty result")}
            continue
        error = max(abs(float(a) - float(b)) for a, b in zip(exact["x"], rounded["x"]))
        out = {**case, "x": exact["x"], "nfe": exact["nfe"], "draws": exact["draws"],
               "f32_error": float(f"{error:.2g}")}
        if not error <= 1e-5:
            out["x_float32"] = rounded["x"]
        if traced:
            out["evaluated"] = exact["evaluated"]
        yield out


def schedule_runs():
    """scheduler, model, steps, and what else is said: tokens, version, options."""
    for n in STEPS:
        for name in ("discrete", "karras", "exponential", "gits", "sgm_uniform", "simple",
                     "smoothstep", "kl_optimal", "lcm", "bong_tangent", "beta"):
            for model in ("sd1",) if name in ("gits", "lcm") else ("sd1", "flow3"):
                yield name, model, n, {}
        for name in ("discrete", "karras", "exponential"):
            yield name, "edm", n, {}
        for version in ("SD1", "SDXL", "SVD"):
            yield "ays", "sd1", n, {"version": version}
        for tokens in (1024, 4096, 8192):
            for name in ("ltx2", "logit_normal", "flux2", "flux"):
                yield name, "flux", n, {"tokens": tokens}
        yield "beta", "sd1", n, {"options": "alpha=0.5,beta=0.7"}


def schedules(harness):
    for name, model, n, said in schedule_runs():
        answer = harness.ask_one("f32", " ".join(map(str, (
            "schedule", harness.schedulers[SCHEDULERS[name]], model, n, said.get("tokens", 4096),
            said.get("version", "SD1"), said.get("options", "-")))))
        yield {"kind": "schedule", "schedule": name, "model": model, "n": n, **said, **answer}
    for model, levels in (("sd1", (0.01, 0.03, 0.5, 1.0, 5.0, 14.0, 20.0)),
                          ("edm", (0.01, 0.5, 1.0, 20.0)), ("flow3", (0.1, 0.5, 0.9, 1.0))):
        for sigma in levels:
            answer = harness.ask("f32", [f"times {model} {sigma}"])[0]
            yield {"kind": "sigma_to_t", "model": model, "sigma": sigma, "t": answer[0]}
    for t in (0.5, 250.0, 353.89, 500.5, 998.9, 999.0):
        answer = harness.ask("f32", [f"times sd1 {t}"])[0]
        yield {"kind": "t_to_sigma", "model": "sd1", "t": t, "sigma": answer[1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sdcpp", type=pathlib.Path, required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    reference = {"name": "stable-diffusion.cpp", "commit": args.commit}
    with tempfile.TemporaryDirectory() as folder:
        harness = Harness(args.sdcpp.resolve(), pathlib.Path(folder))
        files.write(args.out / "samplers_sdcpp.json", {
            "reference": reference, "toy": toy.ABOUT, "starts": toy.STARTS,
            "grids_about": toy.GRIDS_ABOUT, "grids": toy.GRIDS,
            "fields": {
                "x": "final x of the sampler source compiled with double in place of float",
                "f32_error": "max |difference| of the source as it is",
                "x_float32": "the result as it is, where it differs by more than 1e-5",
                "nfe": "calls of the denoiser", "draws": "calls of its generator",
                "evaluated": "sigmas of the calls",
                "error": "the reference refuses or gives nothing"},
            "notes": "Made by sdcpp_golden.py, which includes the reference's sampler header and "
                     "calls sample_k_diffusion with the toy as the model, the flag "
                     "is_flow_denoiser in flow space, eta as given and the other options as its "
                     "extra arguments. cfg_pp: pred the mixture, pred_uncond the single normal.",
        }, list(samplers(harness)), 14)
        files.write(args.out / "schedules_sdcpp.json", {
            "reference": reference,
            "notes": "The reference's get_sigmas in float32, run by sdcpp_golden.py. sd1: its "
                     "table of products in float32; edm .002 .. 120; flow3: discrete flow of shift "
                     "3; flux: flow of its flux class (the schedules there bring their own shift). "
                     "tokens: image_seq_len.",
        }, list(schedules(harness)), 9)


if __name__ == "__main__":
    main()
