"""Imports what samples in a ComfyUI checkout, with stubs for what loads models."""

import importlib
import sys
import types

STUBS = ("comfy.model_management", "comfy.sampler_helpers", "comfy.model_patcher", "comfy.hooks",
         "comfy.patcher_extension", "comfy.context_windows", "comfy.checkpoint_pickle",
         "comfy.cli_args", "comfy.conds", "comfy.ops", "comfy.controlnet", "comfy.model_base")


NODE_STUBS = ("comfy_api", "comfy_api.latest", "nodes", "node_helpers", "latent_preview", "av",
              "comfy.ldm.lightricks", "comfy.ldm.lightricks.symmetric_patchifier",
              "comfy.ldm.flux", "comfy.ldm.flux.math", "comfy.sd", "comfy.sample",
              "comfy.nested_tensor", "comfy.latent_formats")


class Anything(types.ModuleType):
    """A module whose every attribute exists."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *a, **k: None})


class Flags:
    """Command line flags, none of them given."""

    def __getattr__(self, name):
        return False


def add_post_cfg_function(model_options, function, disable_cfg1_optimization=False):
    """A copy of the options that has the hook (what ComfyUI's model patcher does with it)."""
    options = dict(model_options)
    options["sampler_post_cfg_function"] = options.get("sampler_post_cfg_function", []) + [function]
    options["disable_cfg1_optimization"] = disable_cfg1_optimization
    return options


def stub():
    package = importlib.import_module("comfy")
    for name in STUBS:
        sys.modules[name] = Anything(name)
        setattr(package, name.split(".")[-1], sys.modules[name])
    sys.modules["comfy.cli_args"].args = Flags()
    patcher = sys.modules["comfy.model_patcher"]
    patcher.set_model_options_post_cfg_function = add_post_cfg_function


class Model:
    """What nodes patch: keeps the functions that they set, gives the model_sampling."""

    def __init__(self, model_sampling=None):
        self.sampling, self.set = model_sampling, {}
        self.model = types.SimpleNamespace(model_sampling=model_sampling)
        self.model_options = {"transformer_options": {}}

    def clone(self):
        return self

    def get_model_object(self, _):
        return self.sampling

    def __getattr__(self, name):
        def keep(*values, **_):
            self.set.setdefault(name, []).append(values)

        return keep


class Comfy:
    """The modules, the samplers by name, and the two model_samplings of the golden cases."""

    def __init__(self):
        self.sampling = importlib.import_module("comfy.k_diffusion.sampling")
        self.sa_solver = importlib.import_module("comfy.k_diffusion.sa_solver")
        self.uni_pc = importlib.import_module("comfy.extra_samplers.uni_pc")
        self.models = importlib.import_module("comfy.model_sampling")

    def sampler(self, name):
        return getattr(self.sampling, f"sample_{name}")

    def node(self, file, name):
        """The class `name` of comfy_extras/<file>.py, its node framework stubbed."""
        for stubbed in NODE_STUBS:
            if stubbed not in sys.modules:
                sys.modules[stubbed] = Anything(stubbed)
        api = sys.modules["comfy_api.latest"]
        api.io = Anything("io")
        api.io.ComfyNode = api.ComfyExtension = object
        api.io.NodeOutput = lambda *values: values
        return getattr(importlib.import_module(f"comfy_extras.{file}"), name)

    def samplers(self):
        return importlib.import_module("comfy.samplers")

    def unipc(self, name):
        return self.uni_pc.sample_unipc if name == "uni_pc" else self.uni_pc.sample_unipc_bh2

    def model_sampling(self, space, **settings):
        """'ve': eps on the SD1 table; 'flow': CONST on the shifted 1000-entry table."""
        if space == "ve":
            kind = type("Eps", (self.models.ModelSamplingDiscrete, self.models.EPS), {})
            return kind()
        kind = type("Flow", (self.models.ModelSamplingDiscreteFlow, self.models.CONST), {})
        model = kind()
        model.set_parameters(**{"shift": 3.0, **settings})
        return model


def load(path):
    sys.path.insert(0, str(path))
    stub()
    return Comfy()
