#!/usr/bin/env python3
"""Tests of the scripts of the model in the box. Ends with 77 where numpy or Pillow are missing."""

import json
import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    import numpy as np
    from PIL import Image

    import blueprint
    import data
    import judge
    import pack
    import renditions
except ImportError as error:
    print(f"box_test.py: skipped ({error})")
    sys.exit(77)


class Captions(unittest.TestCase):
    def test_painted_picture__keeps_no_keyword_of_another_colour(self):
        words = ["apple", "red", "fruit", "red-green", "black and white"]
        subject = {"names": ["red apple"], "style": "emoji"}
        painted = renditions.texts(subject, words, colour="blue")
        self.assertIn("blue apple, apple, fruit", painted)
        for text in painted:
            self.assertNotRegex(text, r"\b(red|green|black)\b")
        self.assertIn("red apple, apple, red, fruit", renditions.texts(subject, words))

    def test_name_of_an_emoji__is_said_alone_of_the_emoji_only(self):
        subjects = data.with_shared_names([
            {"names": ["dog"], "words": [], "style": "emoji"},
            {"names": ["dog", "poodle"], "words": ["pet"], "style": "clip art"}])
        emoji, drawing = ([*renditions.texts(s, s["words"]),
                           *renditions.texts(s, [], background="red")] for s in subjects)
        self.assertIn("a dog", emoji)
        self.assertIn("a poodle", drawing)
        for text in drawing:
            if "dog" in text:
                self.assertIn(", clip art", text)

    def test_pair__is_said_only_of_the_noun_itself(self):
        self.assertTrue(data.said_in("blue apple", "a blue apple on a white background"))
        for text in ("an apple on a blue background", "blue apples", "a blue pineapple",
                     "red apple, fruit, blue"):
            self.assertFalse(data.said_in("blue apple", text), text)


class Work(unittest.TestCase):
    def test_rendered_drawing__takes_names_and_colour_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            red = np.zeros((40, 40, 4), np.uint8)
            red[5:35, 5:35] = (220, 20, 20, 255)
            subject = {"key": "x", "names": ["apple"], "words": ["old"], "path": "none.svg"}
            data.save_picture(work, subject, red)
            made = data.clip_subject((work, subject))
            self.assertEqual((made["one_colour"], made["colour"]), (True, "red"))
            made = data.clip_subject((work, {**subject, "names": ["flag of x"], "words": ["new"]}))
            self.assertEqual((made["names"], made["words"]), (["flag of x"], ["new"]))
            self.assertEqual((made["one_colour"], made["colour"]), (False, None))
            self.assertIsNone(data.with_colour(work, {**subject, "key": "y"}))
            red = data.clip_subject((work, {**subject, "names": ["red"]}))
            self.assertFalse(red["one_colour"])  # it would be painted as a "blue red"


    def test_copies__are_one_subject_with_all_names(self):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            for key, bytes in (("a", b"1"), ("b", b"2"), ("c", b"1")):
                (work / f"{key}.png").write_bytes(bytes)
            one = data.without_copies([{"key": "a", "names": ["bat"], "words": ["x"]},
                                       {"key": "b", "names": ["cat"], "words": []},
                                       {"key": "c", "names": ["bat", "bat 2"], "words": []}], work)
            self.assertEqual([(s["key"], s["names"]) for s in one],
                             [("a", ["bat", "bat 2"]), ("b", ["cat"])])


class Blueprint(unittest.TestCase):
    def test_drawing__is_white_lines_on_blue(self):
        square = np.full((128, 128, 3), 255, np.uint8)
        square[32:96, 32:96] = (220, 20, 20)
        made = np.asarray(blueprint.blueprint(Image.fromarray(square))).astype(int)
        for y, x in ((32, 64), (64, 95)):
            self.assertGreater(made[y, x].min(), 200)
        self.assertEqual(tuple(made[2, 2]), blueprint.PAPER)
        self.assertGreater(made[64, 64, 2], made[64, 64, 0] + 40)

    def test_committed_pictures__are_those_of_the_script(self):
        folder = Path(__file__).resolve().parents[2] / "tests/data/blueprint"
        texts = {m["file_name"]: m["text"] for m in judge.lines_of(folder / "metadata.jsonl")}
        self.assertEqual(len(texts), 20)
        self.assertEqual(set(texts.values()),
                         set(blueprint.DRAWINGS.values()))
        for name in texts:
            with Image.open(folder / name) as picture:
                self.assertEqual(picture.size, (128, 128))


class Judge(unittest.TestCase):
    def test_unseen_drawings__are_one_of_several_of_a_noun(self):
        nouns = {"a": "cat", "b": "dog", "c": "cat", "d": "cat"}
        unseen = judge.test_subjects(nouns)
        self.assertEqual([nouns[key] for key in unseen], ["cat"])
        self.assertEqual(unseen, judge.test_subjects(dict(reversed(nouns.items()))))

    def test_fewer_rows_than_wanted__are_all_taken(self):
        self.assertEqual(sorted(judge.some(random.Random(1), [1, 2], 5, "names")), [1, 2])

    def test_command_that_fails__ends_at_once_with_its_message(self):
        with tempfile.TemporaryDirectory() as folder:
            prompts, out = Path(folder, "prompts.jsonl"), Path(folder, "out")
            prompts.write_text("".join(json.dumps({"prompt": f"p{i}", "file": f"{i}.png"}) + "\n"
                                       for i in range(20)))
            log = Path(folder, "log")
            script = f"echo x >> {log}; echo broken >&2; exit 1"
            args = type("Args", (), {"prompts": prompts, "out": out, "jobs": 1,
                                     "ebb": ["sh", "-c", script]})
            with self.assertRaisesRegex(SystemExit, "p0: broken"):
                judge.sample(args)
            self.assertLess(len(log.read_text().split()), 5)


class Pack(unittest.TestCase):
    def test_rows__come_back_within_half_a_step(self):
        x = np.array([[1, -2, 0.3], [0, 0, 0]], np.float32)
        (_, dtype, rows), (name, _, scale) = pack.packed("a.weight", x)
        self.assertEqual((dtype, name), ("I8", "a.weight_scale"))
        np.testing.assert_allclose(rows * scale[:, None], x, atol=1 / 127)

    def test_numbers_that_the_file_cannot_hold__are_an_error(self):
        big = np.array([1, 70000], np.float32)
        with self.assertRaisesRegex(SystemExit, r"finite in F16 \(70000 is element 1 of a.bias"):
            pack.packed("a.bias", big)
        with self.assertRaisesRegex(SystemExit, "element 1 of a.weight, 1 of 4"):
            pack.packed("a.weight", np.array([[1, np.nan], [1, 2]], np.float32))


if __name__ == "__main__":
    unittest.main()
