"""The network cases: configurations, inputs, and which module computes the truth."""

import torch

import oracles
import references as ref
from record import image, image_spec
from hashed_weights import hashed_input

BATCH = 2


def adm_inputs(c):
    shape = [BATCH, c["image_size"], c["image_size"], c["in_channels"]]

    def make():
        inputs = {"x": image("input.x", shape), "t": torch.tensor([17.0, 803.0])}
        specs = {"x": image_spec("input.x", shape), "t": {"values": [17.0, 803.0]}}
        if c["num_classes"]:
            inputs["y"] = torch.tensor([1, 3])
            specs["y"] = {"values": [1, 3], "meaning": "class index"}
        return inputs, specs

    return make


def edm_inputs(c):
    shape = [BATCH, c["img_resolution"], c["img_resolution"], c["in_channels"]]

    def make():
        noise = [-0.75, 0.375]
        inputs = {"x": image("input.x", shape), "noise_labels": torch.tensor(noise)}
        specs = {"x": image_spec("input.x", shape), "noise_labels": {"values": noise}}
        if c["label_dim"]:
            inputs["class_labels"] = torch.eye(c["label_dim"])[[1, 3]]
            specs["class_labels"] = {"values": [1, 3], "meaning": "one-hot of label_dim"}
        if c["augment_dim"]:
            name, size = "input.augment_labels", [BATCH, c["augment_dim"]]
            inputs["augment_labels"] = torch.from_numpy(hashed_input(name, size))
            specs["augment_labels"] = {"hash": name, "shape": size, "scale": "sqrt(3)"}
        return inputs, specs

    return make


def dit_inputs(c):
    shape = [BATCH, c["input_size"], c["input_size"], c["in_channels"]]

    def make():
        t, y = [17.0, 803.0], [1, c["num_classes"]]
        inputs = {"x": image("input.x", shape), "t": torch.tensor(t), "y": torch.tensor(y)}
        return inputs, {
            "x": image_spec("input.x", shape),
            "t": {"values": t},
            "y": {"values": y, "meaning": "class index; num_classes is the null class"},
        }

    return make


def cs179_inputs():
    shape, t = [BATCH, 28, 28, 1], [-1.25, 0.5]
    inputs = {"x": image("input.x", shape), "t": torch.tensor(t)}
    specs = {"x": image_spec("input.x", shape), "t": {"values": t, "meaning": "ln sigma"}}
    return inputs, specs


def network_case(name, model, config, side, channels, make_inputs, build, call):
    return dict(name=name, model=model, config=config, make_inputs=make_inputs, build=build,
                call=call, output_shape=[BATCH, side, side, channels])


def adm_case(name, paths, **changes):
    c = dict(image_size=16, in_channels=3, model_channels=32, out_channels=3, num_res_blocks=1,
             attention_resolutions=[8], channel_mult=[1, 2], dropout=0.0, num_classes=0,
             num_heads=1, num_head_channels=0, use_scale_shift_norm=False, resblock_updown=False,
             use_new_attention_order=False)
    c.update(changes)
    return network_case(name, "adm", c, c["image_size"], c["out_channels"], adm_inputs(c),
                        lambda: ref.adm_network(paths["guided_diffusion"], c), ref.adm_call)


def edm_case(name, model, kind, paths, **changes):
    c = dict(img_resolution=16, in_channels=3, out_channels=3, label_dim=4, augment_dim=9,
             model_channels=16, channel_mult=[1, 2], channel_mult_emb=4, num_blocks=1,
             attn_resolutions=[8], dropout=0.0)
    c.update(changes)
    return network_case(name, model, c, c["img_resolution"], c["out_channels"], edm_inputs(c),
                        lambda: ref.edm_network(paths["edm"], kind, c), ref.edm_call)


def dit_case(name, **changes):
    c = dict(input_size=8, patch_size=2, in_channels=4, hidden_size=32, depth=2, num_heads=2,
             mlp_ratio=4.0, num_classes=5, learn_sigma=True)
    c.update(changes)
    channels = c["in_channels"] * (2 if c["learn_sigma"] else 1)
    return network_case(name, "dit", c, c["input_size"], channels, dit_inputs(c),
                        lambda: oracles.DiT(c), lambda m, i: m(i["x"], i["t"], i["y"]))


DDPMPP = dict(embedding_type="positional", channel_mult_noise=1, encoder_type="standard",
              decoder_type="standard", resample_filter=[1, 1])
NCSNPP = dict(embedding_type="fourier", channel_mult_noise=2, encoder_type="residual",
              decoder_type="standard", resample_filter=[1, 3, 3, 1])
ADM_FULL = dict(out_channels=6, num_classes=5, num_head_channels=16, use_scale_shift_norm=True,
                resblock_updown=True, use_new_attention_order=True)


def all_cases(paths):
    """The list of cases; `paths` holds the checkouts under "edm" and "guided_diffusion"."""
    cs179 = dict(image_size=28, in_channels=1)
    return [
        network_case("cs179", "cs179", cs179, 28, 1, cs179_inputs, oracles.CS179,
                     lambda m, i: m(i["x"], i["t"])),
        dit_case("dit_p2"),
        dit_case("dit_p4", patch_size=4),
        adm_case("adm_full", paths, **ADM_FULL),
        # two and three channels a group, so that the embedding matters without scale-shift
        adm_case("adm_plain", paths, channel_mult=[2, 3], num_res_blocks=2, num_heads=2),
        adm_case("adm_pool", paths, conv_resample=False),
        edm_case("songunet_ddpmpp", "songunet", "SongUNet", paths, **DDPMPP),
        edm_case("songunet_ncsnpp", "songunet", "SongUNet", paths, **NCSNPP),
        # three levels, so that the input pyramid and the summed outputs pass through one
        edm_case("songunet_residual3", "songunet", "SongUNet", paths, model_channels=8,
                 channel_mult=[1, 2, 2], **NCSNPP),
        edm_case("songunet_skip3", "songunet", "SongUNet", paths, model_channels=8,
                 channel_mult=[1, 2, 2],
                 **{**NCSNPP, "encoder_type": "skip", "decoder_type": "skip"}),
        edm_case("dhariwal", "dhariwal", "DhariwalUNet", paths, model_channels=64,
                 channel_mult=[1, 1]),
        # two heads at 8x8: tells the order of heads, channels and q,k,v apart
        edm_case("dhariwal_two_heads", "dhariwal", "DhariwalUNet", paths, model_channels=64),
    ]
